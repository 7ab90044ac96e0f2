import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  claim,
  claimedJob,
  eventsOf,
  expectError,
  expectJobIntent,
  expectTime,
  jobResultFields,
  jobsPath,
  newAddon,
  nowhere,
  only,
  plainJob,
  post,
  read,
  retry,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: canceling a job', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    it("answers the contract's example of a cancellation with 200 and the canceled job", async () => {
      const { job_id, addon_id } = await submit(server, {});
      const answer = await cancel(server, job_id, '{ "reason": "user aborted" }');
      expect(answer.status).to.equal(200);
      expect(Object.keys(answer.body)).to.deep.equal(['job']);
      expectJobIntent(answer.body.job, plainJob({ addon_id, state: 'CANCELED' }));
      const event = (await eventsOf(server, job_id)).at(-1);
      expect(event.type).to.equal('JOB_CANCELED');
      expect(event.data).to.include({ from: 'QUEUED', to: 'CANCELED', reason: 'user aborted' });
      expect(event.data.by).to.be.a('string').and.not.to.equal('');
    });

    for (const state of ['CLAIMED', 'PREPARING', 'LEASE_PENDING']) {
      it(`cancels a job in ${state} immediately`, async () => {
        const { job_id } = await claimedJob(server);
        await status(server, job_id, { state });
        const answer = await cancel(server, job_id, { reason: 'r', requested_by: 'operator' });
        expect(answer.body.job).to.include({ state: 'CANCELED', claim_expires_at: null });
        const event = (await eventsOf(server, job_id)).at(-1);
        expect(event.data).to.include({ by: 'operator', from: state, to: 'CANCELED', reason: 'r' });
      });
    }

    it('stores a result with the status CANCELED for a canceled job', async () => {
      const { job_id } = await claimedJob(server);
      await cancel(server, job_id);
      const { result } = await read(server, job_id);
      expectTime(result.finished_at);
      const { finished_at } = result;
      expect(only(result, jobResultFields)).to.deep.equal({
        job_id,
        status: 'CANCELED',
        result_data: null,
        error: null,
        started_at: null,
        finished_at,
        attempts: 0,
      });
    });

    it('cancels a job without a reason, and without a body', async () => {
      for (const body of ['', '{}', '{"reason":null,"requested_by":null,"unknown":[]}']) {
        const { job_id } = await submit(server, {});
        expect((await cancel(server, job_id, body)).body.job.state).to.equal('CANCELED');
      }
    });

    it('answers 200 for a job that is canceled already, and writes nothing', async () => {
      const { job_id } = await submit(server, {});
      const first = await cancel(server, job_id, { reason: 'one' });
      const events = await eventsOf(server, job_id);
      const again = await cancel(server, job_id, { reason: 'two' });
      expect(again.status).to.equal(200);
      expect(again.body).to.deep.equal(first.body);
      expect(await eventsOf(server, job_id)).to.deep.equal(events);
    });

    it('cancels a job once for many requests at the same time', async () => {
      const { job_id } = await claimedJob(server);
      const answers = await Promise.all(Array.from({ length: 10 }, () => cancel(server, job_id)));
      for (const { status, body } of answers) {
        expect(status).to.equal(200);
        expect(body.job.state).to.equal('CANCELED');
      }
      const types = (await eventsOf(server, job_id)).map(({ type }) => type);
      expect(types.filter((type) => type === 'JOB_CANCELED')).to.have.length(1);
    });

    it('lets a cancellation win over what the worker reports after it', async () => {
      const { job_id } = await claimedJob(server);
      const other = await claimedJob(server);
      // The first call keeps a batch running, so that the others share the next one, in either order.
      const [, ...answers] = await Promise.all([
        status(server, other.job_id, { state: 'PREPARING' }),
        cancel(server, job_id),
        ...[1, 2, 3].map(() => status(server, job_id, { state: 'PREPARING' })),
      ]);
      const types = (await eventsOf(server, job_id)).map(({ type }) => type);
      for (const answer of answers.slice(1)) {
        if (answer.status === 200)
          expect(types, 'it was told so, and it is not so').to.include('JOB_PREPARING');
        else expectError(answer, { status: 409, code: 'illegal_transition' });
      }
      expect((await read(server, job_id)).job.state).to.equal('CANCELED');
    });

    it('answers 404 for the cancellation of an unknown job', async () => {
      for (const jobId of [nowhere, 'nonsense']) {
        expectError(await cancel(server, jobId), { status: 404, code: 'job_not_found' });
        expectError(await retry(server, jobId), { status: 404, code: 'job_not_found' });
      }
    });
  });

  describe('retrying a job', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    it('requeues a retried job at its old position, and keeps the old result in the history', async () => {
      const addonId = newAddon();
      const first = await submit(server, { addon_id: addonId });
      await submit(server, { addon_id: addonId });
      await cancel(server, first.job_id);
      const { result } = await read(server, first.job_id);
      const answer = await retry(server, first.job_id, { reason: 'try again', requested_by: 'operator' });
      expect(answer.status).to.equal(200);
      const { updated_at } = answer.body.job;
      expect(answer.body.job).to.deep.equal({ ...first, updated_at });
      expect(await read(server, first.job_id)).to.deep.equal({ job: answer.body.job, result: null });
      const event = (await eventsOf(server, first.job_id)).at(-1);
      expect(event.type).to.equal('JOB_RETRIED');
      expect(event.data).to.include({ by: 'operator', from: 'CANCELED', to: 'QUEUED', reason: 'try again' });
      expect(event.data.previous).to.include({ status: 'CANCELED', attempts: 0 });
      expect(event.data.previous.finished_at).to.equal(result.finished_at);
      expect((await claim(server, addonId)).job_id).to.equal(first.job_id);
    });

    it('retries only ended jobs, and refuses others with 409', async () => {
      const queued = await submit(server, {});
      const { job_id } = await claimedJob(server);
      for (const jobId of [queued.job_id, job_id]) {
        expectError(await retry(server, jobId), { status: 409, code: 'illegal_transition' });
      }
      expect((await read(server, job_id)).job.state).to.equal('CLAIMED');
    });

    it('retries a job once for many requests at the same time', async () => {
      const { job_id, addon_id } = await submit(server, {});
      await cancel(server, job_id);
      const answers = await Promise.all(Array.from({ length: 5 }, () => retry(server, job_id)));
      expect(answers.map(({ status }) => status).sort()).to.deep.equal([200, 409, 409, 409, 409]);
      expect((await claim(server, addon_id)).job_id).to.equal(job_id);
      const more = await post(server, `${jobsPath}/claim`, { addon_id, worker_id: 'w' });
      expect(more.status).to.equal(204);
    });
  });
});

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
  get,
  jobResultFields,
  jobsPath,
  nowhere,
  plainJob,
  retry,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe("the queue contract: reading a job's status", () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    it('answers 200 with the job, and a null result while there is none', async () => {
      const { job_id, addon_id } = await submit(server, {
        constraints: { cpu_heavy: true },
        payload: { a: 1 },
      });
      const { status: code, body } = await get(server, `${jobsPath}/${job_id}`);
      expect(code).to.equal(200);
      expect(Object.keys(body)).to.deep.equal(['job', 'result']);
      expect(body.result).to.equal(null);
      expectJobIntent(
        body.job,
        plainJob({ addon_id, constraints: { cpu_heavy: true }, payload: { a: 1 }, state: 'QUEUED' }),
      );
    });

    it('returns the result of an ended job with all fields of the contract', async () => {
      const { job_id } = await submit(server, {});
      await cancel(server, job_id);
      const { body } = await get(server, `${jobsPath}/${job_id}`);
      expect(body.result).to.include.all.keys(...jobResultFields);
      expect(body.result).to.include({ job_id, status: 'CANCELED', attempts: 0 });
      expect(body.job.updated_at).to.equal(body.result.finished_at);
    });

    it('finds a job by its id in capitals too', async () => {
      const job = await submit(server, {});
      const { body } = await get(server, `${jobsPath}/${job.job_id.toUpperCase()}`);
      expect(body.job).to.deep.equal(job);
      const canceled = await cancel(server, job.job_id.toUpperCase(), {});
      expect(canceled.body.job).to.include({ job_id: job.job_id, state: 'CANCELED' });
      const retried = await retry(server, job.job_id.toUpperCase());
      expect(retried.body.job).to.include({ job_id: job.job_id, state: 'QUEUED' });
      expect(await eventsOf(server, job.job_id.toUpperCase())).to.have.length(3);
    });

    for (const jobId of [nowhere, 'nonsense', '1', `${nowhere}0`, '%00', "' or 1=1 --"]) {
      it(`answers a read of ${JSON.stringify(jobId)} with 404`, async () => {
        const path = `${jobsPath}/${jobId === '%00' ? jobId : encodeURIComponent(jobId)}`;
        expectError(await get(server, path), { status: 404, code: 'job_not_found' });
        expectError(await get(server, `${path}/events`), { status: 404, code: 'job_not_found' });
      });
    }
  });

  describe('the queue contract: events', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    it('returns events as in the example of the contract', async () => {
      const { job_id, addon_id } = await submit(server, {});
      await claim(server, addon_id, { worker_id: 'visuals-worker-01' });
      const { status: code, body } = await get(server, `${jobsPath}/${job_id}/events`);
      expect(code).to.equal(200);
      const [submitted, claimed] = body.events;
      expect(body.events).to.have.length(2);
      for (const event of body.events) {
        expect(event).to.include.all.keys('ts', 'type', 'data');
        expectTime(event.ts);
      }
      expect(submitted.type).to.equal('JOB_SUBMITTED');
      expect(submitted.data).to.include({ priority: 'NORMAL' });
      expect(claimed.type).to.equal('JOB_CLAIMED');
      expect(claimed.data).to.include({ worker_id: 'visuals-worker-01' });
    });

    it('returns every state change in order, with actor, old state and new state', async () => {
      const { job_id, addon_id } = await claimedJob(server);
      await status(server, job_id, { state: 'PREPARING' });
      await status(server, job_id, { state: 'LEASE_PENDING' });
      await status(server, job_id, { state: 'QUEUED' });
      await claim(server, addon_id, { worker_id: 'worker-2' });
      await cancel(server, job_id, { requested_by: 'operator', reason: 'why' });
      await retry(server, job_id, { requested_by: 'admin', reason: 'why not' });
      const events = await eventsOf(server, job_id);
      const told = events.map(({ type, data: { by, from, to } }) => [type, by, from, to]);
      expect(told).to.deep.equal([
        ['JOB_SUBMITTED', addon_id, null, 'QUEUED'],
        ['JOB_CLAIMED', 'worker-1', 'QUEUED', 'CLAIMED'],
        ['JOB_PREPARING', 'worker-1', 'CLAIMED', 'PREPARING'],
        ['JOB_LEASE_PENDING', 'worker-1', 'PREPARING', 'LEASE_PENDING'],
        ['JOB_REQUEUED', 'worker-1', 'LEASE_PENDING', 'QUEUED'],
        ['JOB_CLAIMED', 'worker-2', 'QUEUED', 'CLAIMED'],
        ['JOB_CANCELED', 'operator', 'CLAIMED', 'CANCELED'],
        ['JOB_RETRIED', 'admin', 'CANCELED', 'QUEUED'],
      ]);
      expect(events.at(-2).data.reason).to.equal('why');
      expect(events.at(-1).data.reason).to.equal('why not');
      const times = events.map(({ ts }) => Date.parse(ts));
      expect(times).to.deep.equal([...times].sort((a, b) => a - b));
    });

    it('returns each event once over all pages', async () => {
      const { job_id } = await submit(server, {});
      for (const _ of [1, 2, 3]) {
        await cancel(server, job_id);
        await retry(server, job_id);
      }
      const all = await eventsOf(server, job_id);
      expect(all).to.have.length(7);
      const paged = [];
      for (let cursor = ''; ; ) {
        const { body } = await get(server, `${jobsPath}/${job_id}/events?limit=3&cursor=${cursor}`);
        paged.push(...body.events);
        if (body.next_cursor === null) break;
        expect(body.events).to.have.length(3);
        cursor = encodeURIComponent(body.next_cursor);
      }
      expect(paged).to.deep.equal(all);
    });

    for (const query of [
      'limit=0',
      'limit=201',
      'limit=x',
      'limit=1.5',
      'cursor=x',
      'cursor=-1',
      'cursor=%00',
    ]) {
      it(`refuses events?${query} with 400`, async () => {
        const { job_id } = await submit(server, {});
        const answer = await get(server, `${jobsPath}/${job_id}/events?${query}`);
        expectError(answer, { status: 400, code: 'invalid_request', field: query.split('=')[0] as string });
      });
    }
  });
});

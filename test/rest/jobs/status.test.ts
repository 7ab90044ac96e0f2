import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  claim,
  claimedJob,
  eventsOf,
  expectError,
  expectJobIntent,
  plainJob,
  read,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: updating a job', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    it("answers the contract's example of a status update with 200 and the job", async () => {
      const job = await claimedJob(server);
      const answer = await status(
        server,
        job.job_id,
        '{ "state": "PREPARING", "note": "warming model cache", "progress": 0.15 }',
      );
      expect(answer.status).to.equal(200);
      expect(Object.keys(answer.body)).to.deep.equal(['job']);
      const { addon_id, claim_expires_at } = job;
      expectJobIntent(
        answer.body.job,
        plainJob({ addon_id, state: 'PREPARING', claimed_by: 'worker-1', claim_expires_at }),
      );
      expect(answer.body.job.note).to.equal('warming model cache');
      expect((await read(server, job.job_id)).job).to.deep.equal(answer.body.job);
    });

    const legal = [
      ['CLAIMED', 'PREPARING'],
      ['CLAIMED', 'LEASE_PENDING'],
      ['CLAIMED', 'QUEUED'],
      ['PREPARING', 'LEASE_PENDING'],
      ['PREPARING', 'QUEUED'],
      ['LEASE_PENDING', 'QUEUED'],
    ];
    const claimedIn = async (state: string) => {
      const job = await claimedJob(server);
      if (state !== 'CLAIMED') await status(server, job.job_id, { state });
      return job;
    };
    for (const [from = '', to = ''] of legal) {
      it(`moves a job from ${from} to ${to}`, async () => {
        const { job_id } = await claimedIn(from);
        const answer = await status(server, job_id, { state: to });
        expect(answer.status).to.equal(200);
        expect(answer.body.job.state).to.equal(to);
        const event = (await eventsOf(server, job_id)).at(-1);
        expect(event.data).to.include({ by: 'worker-1', from, to });
      });
    }

    const states = 'QUEUED CLAIMED PREPARING LEASE_PENDING RUNNING DONE FAILED CANCELED TIMEOUT'.split(' ');
    for (const from of ['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING']) {
      const allowed = legal.filter(([state]) => state === from).map(([, to]) => to);
      for (const to of states.filter((state) => state !== from && !allowed.includes(state))) {
        it(`refuses to move a job from ${from} to ${to} with 409`, async () => {
          const job = from === 'QUEUED' ? await submit(server, {}) : await claimedIn(from);
          expectError(await status(server, job.job_id, { state: to }), {
            status: 409,
            code: 'illegal_transition',
          });
          expect((await read(server, job.job_id)).job.state).to.equal(from);
        });
      }
    }

    it('refuses status updates of ended jobs', async () => {
      const { job_id } = await claimedJob(server);
      await cancel(server, job_id);
      for (const state of states.filter((word) => word !== 'CANCELED')) {
        const answer = await status(server, job_id, { state });
        expectError(answer, { status: 409, code: 'illegal_transition' });
      }
      expect((await read(server, job_id)).job.state).to.equal('CANCELED');
    });

    for (const state of ['CLAIMED', 'PREPARING', 'LEASE_PENDING']) {
      it(`updates only note and progress for the present state ${state}`, async () => {
        const { job_id } = await claimedIn(state);
        const events = await eventsOf(server, job_id);
        const first = await status(server, job_id, { state, note: 'one', progress: 0.25 });
        expect(first.body.job).to.include({ state, note: 'one', progress: 0.25 });
        const second = await status(server, job_id, { state, progress: 1 });
        expect(second.body.job).to.include({ state, note: 'one', progress: 1 });
        expect(await eventsOf(server, job_id)).to.deep.equal(events);
      });
    }

    it('requeues a job at its old position without any trace of its claim', async () => {
      const first = await claimedJob(server);
      const { addon_id, job_id } = first;
      await submit(server, { addon_id });
      const answer = await status(server, job_id, { state: 'QUEUED', note: 'no room' });
      const kept = { claimed_by: null, claim_expires_at: null, next_retry_at: null, attempts: 0 };
      expect(answer.body.job).to.include({ state: 'QUEUED', ...kept });
      const event = (await eventsOf(server, job_id)).at(-1);
      expect(event.type).to.equal('JOB_REQUEUED');
      expect(event.data).to.include({ by: 'worker-1', from: 'CLAIMED', to: 'QUEUED', note: 'no room' });
      const again = await claim(server, addon_id, { worker_id: 'worker-2' });
      expect(again).to.include({ job_id, claimed_by: 'worker-2' });
    });

    it('makes a job claimable once when its worker requeues it twice at the same time', async () => {
      const { addon_id, job_id } = await claimedJob(server);
      // The first call keeps a batch running, so that the others share the next one.
      const other = await claimedJob(server);
      const answers = await Promise.all([
        status(server, other.job_id, { state: 'PREPARING' }),
        ...[1, 2, 3].map(() => status(server, job_id, { state: 'QUEUED' })),
      ]);
      for (const answer of answers) expect(answer.status).to.equal(200);
      const { job } = await read(server, job_id);
      expect(job).to.include({
        state: 'QUEUED',
        claimed_by: null,
        claim_expires_at: null,
        next_retry_at: null,
      });
      expect(await claim(server, addon_id)).to.include({ job_id });
    });

    it('refuses with 403 a status update that names another worker', async () => {
      const { job_id } = await claimedJob(server);
      const answer = await status(server, job_id, { state: 'PREPARING', worker_id: 'worker-2' });
      expectError(answer, { status: 403, code: 'worker_mismatch' });
      expect((await read(server, job_id)).job.state).to.equal('CLAIMED');
      const own = await status(server, job_id, { state: 'PREPARING', worker_id: 'worker-1' });
      expect(own.status).to.equal(200);
    });

    it('treats null note, progress and worker_id as absent, and ignores unknown fields', async () => {
      const { job_id } = await claimedJob(server);
      const nulls = { note: null, progress: null, worker_id: null, unknown: 1 };
      const answer = await status(server, job_id, { state: 'PREPARING', ...nulls });
      expect(answer.status).to.equal(200);
      expect(answer.body.job).to.include({ note: null, progress: null });
    });

    for (const progress of [-0.01, 1.01, 100]) {
      it(`refuses a progress of ${progress} with 400`, async () => {
        const { job_id } = await claimedJob(server);
        const answer = await status(server, job_id, { state: 'PREPARING', progress });
        expectError(answer, { status: 400, code: 'invalid_request', field: 'progress' });
      });
    }

    for (const state of [undefined, 'LEASED', 'preparing', 'SLEEPING']) {
      it(`refuses the state ${state} with 400`, async () => {
        const { job_id } = await claimedJob(server);
        const answer = await status(server, job_id, { state });
        expectError(answer, { status: 400, code: 'invalid_request', field: 'state' });
      });
    }

    it('answers 404 for a status update of an unknown job', async () => {
      for (const jobId of ['00000000-0000-4000-8000-000000000000', 'nonsense']) {
        const answer = await status(server, jobId, { state: 'PREPARING' });
        expectError(answer, { status: 404, code: 'job_not_found' });
      }
    });
  });
});

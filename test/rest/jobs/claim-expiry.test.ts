import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  type Body,
  claim,
  claimedJob,
  eventsOf,
  expectError,
  expectTime,
  jobsPath,
  newAddon,
  post,
  read,
  retry,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: expiry of a claim', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { claimTtlS: 1, maxClaims: 2 } });
    });
    after(() => server.stop());

    const eventOf = (jobId: string, type: string, nth = 1) =>
      eventually(`${type} of a job`, async () => {
        const found = (await eventsOf(server, jobId)).filter((event) => event.type === type);
        return found.length >= nth ? found[nth - 1] : undefined;
      });

    it('requeues the job of an expired claim, and records an event', async () => {
      const job = await claimedJob(server);
      const event: Body = await eventOf(job.job_id, 'CLAIM_EXPIRED');
      expect(event.data).to.include({ from: 'CLAIMED', to: 'QUEUED', worker_id: 'worker-1' });
      expect(event.data.by).to.be.a('string').and.not.to.equal('');
      expect(event.data.reason).to.be.a('string').and.not.to.equal('');
      const deadline = Date.parse(job.claim_expires_at);
      expect(Date.parse(event.ts), 'not early').to.be.at.least(deadline);
      expectTime(event.ts, { of: deadline, withinMs: 1_500 });
      const { job: now, result } = await read(server, job.job_id);
      expect(now).to.include({ state: 'QUEUED', claimed_by: null, claim_expires_at: null, attempts: 0 });
      expect(result).to.equal(null);
    });

    it('requeues a job of an expired claim from PREPARING and LEASE_PENDING as well', async () => {
      const losing = async (state: string) => {
        const { job_id, addon_id } = await submit(server, {});
        // On a busy machine the claim may expire before the worker's first update; the test then repeats it.
        const heard = await eventually('a worker is heard in time', async () => {
          await post(server, `${jobsPath}/claim`, { addon_id, worker_id: 'worker-1' });
          const answer = await status(server, job_id, { state });
          return answer.status === 200 ? answer.body.job : undefined;
        });
        const event = await eventually('the claim runs out', async () =>
          (await eventsOf(server, job_id)).find(({ data }) => data.from === state),
        );
        expect(heard.state).to.equal(state);
        expect(event.type).to.equal('CLAIM_EXPIRED');
        expect(event.data.to).to.equal('QUEUED');
      };
      await Promise.all(['PREPARING', 'LEASE_PENDING'].map(losing));
    });

    it('refuses updates of a worker whose claim expired', async () => {
      const job = await claimedJob(server);
      await eventOf(job.job_id, 'CLAIM_EXPIRED');
      const answer = await status(server, job.job_id, { state: 'PREPARING', worker_id: 'worker-1' });
      expect(answer.status).to.equal(409);
      expect(answer.body.code).to.be.oneOf(['job_not_claimed', 'illegal_transition']);
    });

    it('gives the job of an expired claim its old position in the queue, and blocks no worker', async () => {
      const addonId = newAddon();
      const first = await submit(server, { addon_id: addonId });
      await submit(server, { addon_id: addonId });
      await claim(server, addonId);
      await eventOf(first.job_id, 'CLAIM_EXPIRED');
      await submit(server, { addon_id: addonId });
      const again = await claim(server, addonId, { worker_id: 'worker-2' });
      expect(again).to.include({ job_id: first.job_id, claimed_by: 'worker-2' });
    });

    it('answers an old request_id with fresh jobs after its claim expired', async () => {
      const { addon_id, job_id } = await submit(server, {});
      await claim(server, addon_id, { request_id: 'r' });
      await eventOf(job_id, 'CLAIM_EXPIRED');
      const other = await claim(server, addon_id, { worker_id: 'worker-2', request_id: 'r' });
      expect(other.claimed_by).to.equal('worker-2');
      const answer = await post(server, `${jobsPath}/claim`, {
        addon_id,
        worker_id: 'worker-1',
        request_id: 'r',
      });
      expect(answer.status).to.equal(204);
    });

    it('fails a job after MAX_CLAIMS expired claims in a row; an operator may retry it', async () => {
      const { addon_id, job_id } = await submit(server, {});
      await claim(server, addon_id);
      await eventOf(job_id, 'CLAIM_EXPIRED');
      await claim(server, addon_id);
      const event = await eventOf(job_id, 'JOB_FAILED');
      expect(event.data).to.include({ from: 'CLAIMED', to: 'FAILED' });
      const { job, result } = await read(server, job_id);
      expect(job).to.include({ state: 'FAILED', attempts: 0, claim_expires_at: null });
      expect(result).to.include({
        job_id,
        status: 'FAILED',
        result_data: null,
        started_at: null,
        attempts: 0,
      });
      expect(result.error).to.be.a('string').and.to.include('claims');
      expectTime(result.finished_at);
      const answer = await status(server, job_id, { state: 'PREPARING' });
      expectError(answer, { status: 409, code: 'illegal_transition' });
      expect((await retry(server, job_id)).body.job.state).to.equal('QUEUED');
      await claim(server, addon_id);
      await eventOf(job_id, 'CLAIM_EXPIRED', 3);
      expect((await read(server, job_id)).job.state).to.equal('QUEUED');
    });
  });
});

import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { cancel, expectError, expectTime, get, nowhere } from '../../support/jobs-api.ts';
import { between, capacityOf, plenty, readLease, typesOf } from '../../support/leases-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';
import { beat, complete, fail, grantedJob, readSystem, systemPath } from '../../support/system-api.ts';

onEveryEngine((engine) => {
  describe('the heartbeat contract', () => {
    const share = shareServer(engine, { leaseTtlS: 40, heartbeatGraceS: 5, capacityTotal: plenty });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => share.leave());

    it("answers the contract's example of a heartbeat with ok and the new expires_at", async () => {
      const { lease } = await grantedJob(server);
      const answer = await beat(server, lease.lease_id, '{ "worker_id": "worker-123" }');
      expect(answer.status, answer.text).to.equal(200);
      expect(answer.headers.get('content-type')).to.match(/^application\/json/);
      const { ok, expires_at, ttl_remaining_ms, cancel_requested, drain, ...more } = answer.body;
      expect(ok).to.equal(true);
      expectTime(expires_at, { of: Date.now() + 45_000, withinMs: 5_000 });
      expect(Number.isInteger(ttl_remaining_ms), `${ttl_remaining_ms}`).to.equal(true);
      expect(ttl_remaining_ms).to.be.within(40_000, 45_000);
      expect({ cancel_requested, drain, ...more }).to.deep.equal({ cancel_requested: false, drain: false });
      expect((await readLease(server, lease.lease_id)).expires_at).to.equal(expires_at);
    });

    it('computes expires_at from the TTL and the grace, at the grant and at every heartbeat', async () => {
      const { lease } = await grantedJob(server);
      expect(between(lease.issued_at, lease.expires_at)).to.equal(45_000);
      let last = lease.expires_at;
      for (const _ of [1, 2, 3]) {
        const { body } = await beat(server, lease.lease_id);
        expect(between(last, body.expires_at)).to.be.at.least(0);
        const { last_heartbeat_at, expires_at } = await readLease(server, lease.lease_id);
        expect(between(last_heartbeat_at, expires_at)).to.equal(45_000);
        last = expires_at;
      }
      expect(between(lease.expires_at, last)).to.be.above(0);
    });

    it('moves the job from leased to running with the first heartbeat, and records only that', async () => {
      const { lease, job } = await grantedJob(server);
      expect(job.state).to.equal('leased');
      const answers = await Promise.all([1, 2, 3].map(() => beat(server, lease.lease_id)));
      await beat(server, lease.lease_id);
      expect(answers.map(({ status }) => status)).to.deep.equal([200, 200, 200]);
      expect((await readSystem(server, job.job_id)).job.state).to.equal('running');
      expect(await typesOf(server, job.job_id)).to.deep.equal([
        'JOB_SUBMITTED',
        'LEASE_GRANTED',
        'JOB_RUNNING',
      ]);
    });

    it('stores the progress that a heartbeat reports', async () => {
      const { lease, job } = await grantedJob(server);
      const said = { job_id: job.job_id, lease_token: lease.lease_token, progress: 0.5, message: 'halfway' };
      expect((await beat(server, lease.lease_id, said)).status).to.equal(200);
      expect((await readSystem(server, job.job_id)).job).to.include({ progress: 0.5, note: 'halfway' });
      const nulls = { job_id: null, lease_token: null, progress: null, message: null };
      expect((await beat(server, lease.lease_id, nulls)).status).to.equal(200);
      expect((await readSystem(server, job.job_id)).job).to.include({ progress: 0.5, note: 'halfway' });
    });

    it('reports a cancellation request to the worker, whose job then ends as canceled', async () => {
      const { lease, job } = await grantedJob(server);
      await cancel(server, job.job_id);
      expect((await beat(server, lease.lease_id)).body).to.include({ ok: true, cancel_requested: true });
      expect((await readSystem(server, job.job_id)).job).to.include({
        state: 'running',
        cancel_requested: true,
      });
      const { body } = await complete(server, lease.lease_id, { result: 'half' });
      expect(body.job.state).to.equal('canceled');
      const { result } = await readSystem(server, job.job_id);
      expect(result).to.include({ status: 'CANCELED', result_data: 'half' });
    });

    it('moves the job from running to completed or failed on completion', async () => {
      const good = await grantedJob(server);
      await beat(server, good.lease.lease_id);
      const completed = await complete(server, good.lease.lease_id, { result: { path: '/out.jpg' } });
      expect(completed.status, completed.text).to.equal(200);
      expect(completed.body).to.have.all.keys('ok', 'job');
      expect(completed.body.ok).to.equal(true);
      expect(completed.body.job).to.include({ job_id: good.job.job_id, state: 'completed' });
      const bad = await grantedJob(server);
      await beat(server, bad.lease.lease_id);
      const failed = await fail(server, bad.lease.lease_id, { error: { message: 'out of memory' } });
      expect(failed.body).to.include({ ok: true, requeued: false });
      expect(failed.body.job).to.include({ job_id: bad.job.job_id, state: 'failed' });
    });

    it('completes a job without any heartbeat by way of running', async () => {
      const { lease, job } = await grantedJob(server);
      expect((await complete(server, lease.lease_id)).body.job.state).to.equal('completed');
      expect(await typesOf(server, job.job_id)).to.deep.equal([
        'JOB_SUBMITTED',
        'LEASE_GRANTED',
        'JOB_RUNNING',
        'LEASE_RELEASED',
        'JOB_DONE',
      ]);
    });

    it('uses capacity until completion or expiry of a leased or running job', async () => {
      const base = await capacityOf(server);
      const fields = { max_runtime_s: 1, requested_units: 6 };
      const [silent, heard, done] = await Promise.all([1, 2, 3].map(() => grantedJob(server, fields)));
      await beat(server, heard?.lease.lease_id);
      expect((await capacityOf(server)).used - base.used).to.equal(18);
      await complete(server, done?.lease.lease_id);
      expect((await capacityOf(server)).used - base.used).to.equal(12);
      for (const one of [silent, heard]) {
        await eventually('the job expires', async () => {
          const { job } = await readSystem(server, one?.job.job_id);
          return job.state === 'expired' ? job : undefined;
        });
        const answer = await beat(server, one?.lease.lease_id);
        expectError(answer, { status: 409, code: 'lease_not_active' });
        expect(answer.body.detail).to.match(/expired/);
      }
      expect((await capacityOf(server)).used).to.equal(base.used);
      expect(await typesOf(server, silent?.job.job_id)).to.deep.equal([
        'JOB_SUBMITTED',
        'LEASE_GRANTED',
        'LEASE_EXPIRED',
        'JOB_TIMEOUT',
      ]);
    });

    it('answers 404 for a heartbeat of an unknown lease', async () => {
      for (const leaseId of [nowhere, 'nonsense', '%00']) {
        expectError(await beat(server, leaseId), { status: 404, code: 'lease_not_found' });
      }
    });

    it('refuses a heartbeat with another worker_id with 403, and changes nothing', async () => {
      const { lease, job } = await grantedJob(server);
      const stranger = await beat(server, lease.lease_id, { worker_id: 'worker-456' });
      expectError(stranger, { status: 403, code: 'worker_mismatch' });
      const thief = await beat(server, lease.lease_id, { lease_token: nowhere });
      expectError(thief, { status: 403, code: 'token_mismatch' });
      const elsewhere = await beat(server, lease.lease_id, { job_id: nowhere });
      expectError(elsewhere, { status: 409, code: 'job_mismatch' });
      expect((await readSystem(server, job.job_id)).job.state).to.equal('leased');
      expect((await readLease(server, lease.lease_id)).expires_at).to.equal(lease.expires_at);
    });

    it('refuses a heartbeat of a completed job with 409', async () => {
      const { lease } = await grantedJob(server);
      await complete(server, lease.lease_id);
      const answer = await beat(server, lease.lease_id);
      expectError(answer, { status: 409, code: 'lease_not_active' });
      expect(answer.body.detail).to.match(/released/);
    });

    it('refuses a heartbeat without worker_id', async () => {
      const { lease } = await grantedJob(server);
      const answer = await beat(server, lease.lease_id, '{}');
      expectError(answer, { status: 400, code: 'invalid_request', field: 'worker_id' });
    });

    it('accepts only POST on the heartbeat route', async () => {
      const answer = await get(server, `${systemPath}/leases/${nowhere}/heartbeat`);
      expectError(answer, { status: 405, code: 'method_not_allowed' });
      expect(answer.headers.get('allow')).to.equal('POST');
    });
  });
});

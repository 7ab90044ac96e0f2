import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  expectError,
  expectJobIntent,
  expectTime,
  get,
  nowhere,
  plainJob,
  post,
  read,
  submit,
} from '../../support/jobs-api.ts';
import {
  between,
  expectLease,
  heartbeat,
  leasedJob,
  leasePath,
  plenty,
  readLease,
  release,
  typesOf,
} from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { holdSharedServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: a heartbeat', () => {
    let server: TestServer;
    holdSharedServer(engine, { capacityTotal: plenty }, (shared) => {
      server = shared;
    });

    it("answers the contract's example of a heartbeat with 200, the lease and the job", async () => {
      const { addon_id, job_id } = await submit(server, {});
      await post(server, '/api/scheduler/jobs/claim', { addon_id, worker_id: 'visuals-worker-01' });
      const grant = (await post(server, `${leasePath}/request`, { job_id, ttl_sec: 30 })).body;
      const { lease_id, granted_at, fence } = grant.lease;
      const answer = await heartbeat(
        server,
        lease_id,
        `{
          "job_id": "${job_id}",
          "worker_id": "visuals-worker-01",
          "progress": 0.65,
          "message": "rendering step 23/35"
        }`,
      );
      expect(answer.status, answer.text).to.equal(200);
      expect(answer.headers.get('content-type')).to.match(/^application\/json/);
      expect(answer.body).to.have.all.keys('lease', 'job');
      const { lease, job } = answer.body;
      expectLease(lease, { job_id, addon_id, cost_units: 30, ttl_sec: 30, state: 'ACTIVE' });
      expect(lease).to.include({ lease_id, granted_at, fence, worker_id: 'visuals-worker-01', attempt: 1 });
      expectJobIntent(
        job,
        plainJob({ addon_id, state: 'RUNNING', claimed_by: 'visuals-worker-01', lease_id, attempts: 1 }),
      );
      expect(job).to.include({ progress: 0.65, note: 'rendering step 23/35', cancel_requested: false });
      expect(await read(server, job_id)).to.deep.equal({ job, result: null });
      expect(await readLease(server, lease_id)).to.deep.equal(lease);
    });

    it('extends the lease by its own TTL at every heartbeat', async () => {
      const { lease } = await leasedJob(server, {}, { ttl_sec: 7 });
      let last = lease;
      for (const _ of [1, 2, 3]) {
        const { body } = await heartbeat(server, lease.lease_id);
        expect(between(body.lease.last_heartbeat_at, body.lease.expires_at)).to.equal(7_000);
        expect(between(last.last_heartbeat_at, body.lease.last_heartbeat_at)).to.be.at.least(0);
        expect(between(last.expires_at, body.lease.expires_at)).to.be.at.least(0);
        expect(body.lease).to.include({ ttl_sec: 7, state: 'ACTIVE', granted_at: lease.granted_at });
        last = body.lease;
      }
      expectTime(last.last_heartbeat_at, { withinMs: 5_000 });
      expect(between(lease.last_heartbeat_at, last.last_heartbeat_at)).to.be.above(0);
    });

    it('keeps earlier fields that a heartbeat omits or sets to null', async () => {
      const { lease } = await leasedJob(server);
      await heartbeat(server, lease.lease_id, { progress: 0.25, message: 'warming' });
      const nulls = { job_id: null, progress: null, message: null, lease_token: null, unknown: 1 };
      const { body } = await heartbeat(server, lease.lease_id, nulls);
      expect(body.job).to.include({ progress: 0.25, note: 'warming' });
      const back = await heartbeat(server, lease.lease_id, { progress: 0, message: '' });
      expect(back.body.job).to.include({ progress: 0, note: '' });
    });

    it('writes no events for heartbeats: the job is RUNNING from the grant on', async () => {
      const { lease, job } = await leasedJob(server);
      const before = await typesOf(server, job.job_id);
      await heartbeat(server, lease.lease_id, { progress: 0.5 });
      expect(await typesOf(server, job.job_id)).to.deep.equal(before);
    });

    it('accepts many simultaneous heartbeats', async () => {
      const { lease } = await leasedJob(server);
      const answers = await Promise.all(Array.from({ length: 20 }, () => heartbeat(server, lease.lease_id)));
      expect(new Set(answers.map(({ status }) => status))).to.deep.equal(new Set([200]));
    });

    it('reports a cancellation request in the answer to a heartbeat', async () => {
      const { lease, job } = await leasedJob(server);
      const asked = await cancel(server, job.job_id, { reason: 'user aborted' });
      expect(asked.status).to.equal(200);
      expect(asked.body.job).to.include({ state: 'RUNNING', cancel_requested: true });
      const { body } = await heartbeat(server, lease.lease_id);
      expect(body.job).to.include({ state: 'RUNNING', cancel_requested: true });
      expect(body.lease.state).to.equal('ACTIVE');
    });

    it('never extends a lease beyond max_runtime_s', async () => {
      const { lease } = await leasedJob(server, { max_runtime_s: 20 }, { ttl_sec: 60 });
      expect(between(lease.granted_at, lease.expires_at)).to.equal(20_000);
      const { body } = await heartbeat(server, lease.lease_id);
      expect(body.lease.expires_at).to.equal(lease.expires_at);
    });

    it('answers 404 for a heartbeat of an unknown lease', async () => {
      for (const leaseId of [nowhere, 'nonsense', '%00', 'x'.repeat(2_000)]) {
        expectError(await heartbeat(server, leaseId), { status: 404, code: 'lease_not_found' });
      }
    });

    it('refuses a heartbeat of a released lease with 409 and the time of the release', async () => {
      const { lease } = await leasedJob(server);
      const released = await release(server, lease.lease_id);
      const answer = await heartbeat(server, lease.lease_id);
      expectError(answer, { status: 409, code: 'lease_not_active' });
      expect(answer.body.detail)
        .to.match(/released/)
        .and.to.include(released.body.lease.ended_at);
      expect(await readLease(server, lease.lease_id)).to.deep.equal(released.body.lease);
    });

    it('refuses a heartbeat with another worker or token with 403, and changes nothing', async () => {
      const { lease } = await leasedJob(server);
      const stranger = await heartbeat(server, lease.lease_id, { worker_id: 'worker-2' });
      expectError(stranger, { status: 403, code: 'worker_mismatch' });
      const thief = { worker_id: 'worker-2', lease_token: lease.lease_token };
      expectError(await heartbeat(server, lease.lease_id, thief), { status: 403, code: 'worker_mismatch' });
      for (const token of [nowhere, 'nonsense', '']) {
        const answer = await heartbeat(server, lease.lease_id, { lease_token: token });
        expectError(answer, { status: 403, code: 'token_mismatch' });
        expect(answer.text).not.to.include(lease.lease_token);
      }
      const { lease_token, ...rest } = lease;
      expect(await readLease(server, lease.lease_id)).to.deep.equal(rest);
      expect((await heartbeat(server, lease.lease_id, { lease_token })).status).to.equal(200);
    });

    it('refuses a heartbeat with the job_id of another job with 409', async () => {
      const { lease } = await leasedJob(server);
      const other = await leasedJob(server);
      for (const job_id of [other.job.job_id, nowhere, 'nonsense']) {
        const answer = await heartbeat(server, lease.lease_id, { job_id });
        expectError(answer, { status: 409, code: 'job_mismatch' });
      }
    });

    it('refuses a heartbeat without worker_id', async () => {
      const { lease, job } = await leasedJob(server);
      const answer = await heartbeat(server, lease.lease_id, `{ "job_id": "${job.job_id}" }`);
      expectError(answer, { status: 400, code: 'invalid_request', field: 'worker_id' });
    });

    it('accepts a lease id in capital letters', async () => {
      const { lease } = await leasedJob(server);
      const { status, body } = await heartbeat(server, lease.lease_id.toUpperCase());
      expect(status).to.equal(200);
      expect(body.lease.lease_id).to.equal(lease.lease_id);
    });

    it('reads a lease without renewing it', async () => {
      const { lease } = await leasedJob(server);
      const answer = await get(server, `${leasePath}/${lease.lease_id}`);
      expect(answer.status).to.equal(200);
      expect(Object.keys(answer.body)).to.deep.equal(['lease']);
      const { lease_token: _, ...rest } = lease;
      expect(answer.body.lease).to.deep.equal(rest);
      for (const leaseId of [nowhere, 'nonsense']) {
        const unknown = await get(server, `${leasePath}/${leaseId}`);
        expectError(unknown, { status: 404, code: 'lease_not_found' });
      }
    });
  });
});

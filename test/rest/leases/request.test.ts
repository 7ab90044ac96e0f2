import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  claim,
  claimedJob,
  eventsOf,
  expectError,
  expectJobIntent,
  get,
  jobsPath,
  nowhere,
  plainJob,
  read,
  status,
  submit,
} from '../../support/jobs-api.ts';
import {
  between,
  expectLease,
  expectReplay,
  heartbeat,
  leasedJob,
  leasePath,
  plenty,
  readLease,
  release,
  requestLease,
  typesOf,
} from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: requesting a lease', () => {
    const share = shareServer(engine, { capacityTotal: plenty });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => share.leave());

    it("answers the contract's example of a request with 200, approved, and the ACTIVE lease", async () => {
      const submitted = await submit(server, { addon_id: 'visuals', constraints: { cpu_heavy: true } });
      const { job_id } = submitted;
      await claim(server, 'visuals', { worker_id: 'visuals-worker-01' });
      const answer = await requestLease(
        server,
        `{
          "job_id": "${job_id}",
          "addon_id": "visuals",
          "job_type": "load30",
          "cost_units": 30,
          "priority": "NORMAL",
          "constraints": { "cpu_heavy": true },
          "ttl_sec": 30
        }`,
      );
      expect(answer.status).to.equal(200);
      expect(answer.headers.get('content-type')).to.match(/^application\/json/);
      expect(answer.body).to.have.all.keys('approved', 'lease', 'job', 'heartbeat_within_ms');
      const { approved, lease, job } = answer.body;
      expect(approved).to.equal(true);
      expectLease(lease, { job_id, addon_id: 'visuals', cost_units: 30, ttl_sec: 30, state: 'ACTIVE' });
      expect(lease.last_heartbeat_at).to.equal(lease.granted_at);
      expect(between(lease.granted_at, lease.expires_at)).to.equal(30_000);
      expect(lease).to.include({ worker_id: 'visuals-worker-01', attempt: 1 });
      expect(lease).to.include({ ended_at: null, release_status: null });
      expect(lease.lease_token).to.be.a('string').and.not.to.equal('');
      expectJobIntent(
        job,
        plainJob({
          addon_id: 'visuals',
          constraints: { cpu_heavy: true },
          state: 'RUNNING',
          claimed_by: 'visuals-worker-01',
          lease_id: lease.lease_id,
          attempts: 1,
        }),
      );
      expect(await read(server, job_id)).to.deep.equal({ job, result: null });
    });

    it('shows the token in the grant and nowhere else', async () => {
      const { lease, job } = await leasedJob(server);
      const { lease_token: token, ...rest } = lease;
      expect(await readLease(server, lease.lease_id)).to.deep.equal(rest);
      const beat = await heartbeat(server, lease.lease_id);
      const places = [
        beat.text,
        (await get(server, `${leasePath}/${lease.lease_id}`)).text,
        (await get(server, `${jobsPath}/${job.job_id}`)).text,
        (await get(server, `${jobsPath}/${job.job_id}/events`)).text,
        (await get(server, `${jobsPath}?addon_id=${job.addon_id}`)).text,
        (await release(server, lease.lease_id)).text,
      ];
      for (const text of places) expect(text).not.to.include(token).and.not.to.include('lease_token');
    });

    it('records the grant of a lease in the history', async () => {
      const { lease, job } = await leasedJob(server);
      const event = (await eventsOf(server, job.job_id)).at(-1);
      expect(event).to.include({ type: 'LEASE_GRANTED', lease_id: lease.lease_id, ts: lease.granted_at });
      expect(event.data).to.include({ from: 'LEASE_PENDING', to: 'RUNNING', by: 'worker-1' });
    });

    for (const state of ['CLAIMED', 'PREPARING', 'LEASE_PENDING']) {
      it(`leases a job in ${state}`, async () => {
        const { job_id } = await claimedJob(server);
        if (state !== 'CLAIMED') await status(server, job_id, { state });
        const { body } = await requestLease(server, { job_id });
        expect(body.approved).to.equal(true);
        expect(body.job.state).to.equal('RUNNING');
        expect(await typesOf(server, job_id)).to.include.members(['JOB_LEASE_PENDING', 'LEASE_GRANTED']);
      });
    }

    it('requires only the job_id of a lease request, and applies the TTL of the settings', async () => {
      const { lease } = await leasedJob(server);
      expect(lease.ttl_sec).to.equal(60);
      expect(between(lease.granted_at, lease.expires_at)).to.equal(60_000);
    });

    it('treats null in fields of a lease request as absent, and ignores unknown fields', async () => {
      const nulls = { addon_id: null, worker_id: null, ttl_sec: null, request_id: null };
      const { lease } = await leasedJob(server, {}, { ...nulls, lease_token: 'mine', colour: ['red'] });
      expect(lease.ttl_sec).to.equal(60);
      expect(lease.lease_token).not.to.equal('mine');
    });

    for (const ttl of [1, 3_600]) {
      it(`accepts a ttl_sec of ${ttl}`, async () => {
        const { lease } = await leasedJob(server, {}, { ttl_sec: ttl });
        expect(between(lease.granted_at, lease.expires_at)).to.equal(ttl * 1000);
        await release(server, lease.lease_id);
      });
    }

    it("applies the job's own type, cost, priority and constraints, not those of the request", async () => {
      const own = { cost_units: 7, priority: 'HIGH', constraints: { cpu_heavy: true } };
      const others = { job_type: 'other', cost_units: 5_000, priority: 'LOW', constraints: { gpu: true } };
      const nonsense = { job_type: 5, cost_units: 'many', priority: 'SOON', constraints: [] };
      for (const said of [others, nonsense]) {
        const { lease, job } = await leasedJob(server, own, said);
        expect(lease.cost_units).to.equal(7);
        expect(job).to.deep.include({ job_type: 'load30', ...own });
      }
    });

    it('gives every lease a higher fence than all earlier leases', async () => {
      const fences = [];
      for (const _ of [1, 2, 3]) fences.push((await leasedJob(server)).lease.fence);
      expect(fences).to.deep.equal([...new Set(fences)].sort((a, b) => a - b));
    });

    it('returns the same grant for the same request_id as long as the lease lives', async () => {
      const { job_id } = await claimedJob(server);
      const ask = { job_id, request_id: 'lost answer' };
      const first = (await requestLease(server, ask)).body;
      const again = await requestLease(server, ask);
      expect(again.status, again.text).to.equal(200);
      expectReplay(again.body, first);
      const beat = await heartbeat(server, first.lease.lease_id, { progress: 0.5 });
      const third = (await requestLease(server, ask)).body;
      expect(third).to.deep.include({ approved: true, job: beat.body.job });
      expect(third.lease).to.deep.equal({ ...beat.body.lease, lease_token: first.lease.lease_token });
      expect((await typesOf(server, job_id)).filter((type) => type === 'LEASE_GRANTED')).to.have.length(1);
      for (const other of [{ job_id, request_id: 'another' }, { job_id }]) {
        expectError(await requestLease(server, other), { status: 409, code: 'job_not_claimed' });
      }
      await release(server, first.lease.lease_id);
      expectError(await requestLease(server, ask), { status: 409, code: 'job_not_claimed' });
    });

    it('grants one lease if the same worker asks many times at once', async () => {
      const { job_id } = await claimedJob(server);
      const answers = await Promise.all(Array.from({ length: 10 }, () => requestLease(server, { job_id })));
      expect(answers.filter(({ body }) => body.approved)).to.have.length(1);
      for (const answer of answers.filter(({ status }) => status !== 200)) {
        expectError(answer, { status: 409, code: 'job_not_claimed' });
      }
      expect((await read(server, job_id)).job.attempts).to.equal(1);
    });

    it('refuses a lease for an unclaimed or ended job with 409', async () => {
      const { job_id } = await submit(server, {});
      expectError(await requestLease(server, { job_id }), { status: 409, code: 'job_not_claimed' });
      await cancel(server, job_id);
      expectError(await requestLease(server, { job_id }), { status: 409, code: 'job_not_claimed' });
      const { lease } = await leasedJob(server);
      await release(server, lease.lease_id);
      const over = await requestLease(server, { job_id: lease.job_id });
      expectError(over, { status: 409, code: 'job_not_claimed' });
    });

    it('refuses a lease for a job that another worker has claimed with 403', async () => {
      const { job_id } = await claimedJob(server);
      const answer = await requestLease(server, { job_id, worker_id: 'worker-2' });
      expectError(answer, { status: 403, code: 'worker_mismatch' });
      expect((await read(server, job_id)).job.state).to.equal('CLAIMED');
      const { body } = await requestLease(server, { job_id, worker_id: 'worker-1' });
      expect(body.lease.worker_id).to.equal('worker-1');
    });

    it("refuses a lease request with another job's addon_id with 409", async () => {
      const { job_id, addon_id } = await claimedJob(server);
      const answer = await requestLease(server, { job_id, addon_id: 'another' });
      expectError(answer, { status: 409, code: 'job_mismatch' });
      expect((await requestLease(server, { job_id, addon_id })).body.approved).to.equal(true);
    });

    it('answers 404 for a lease request for an unknown job', async () => {
      for (const job_id of [nowhere, 'nonsense', '']) {
        expectError(await requestLease(server, { job_id }), { status: 404, code: 'job_not_found' });
      }
    });

    it('accepts a job_id in capital letters in a lease request', async () => {
      const { job_id } = await claimedJob(server);
      const { body } = await requestLease(server, { job_id: job_id.toUpperCase() });
      expect(body.lease.job_id).to.equal(job_id);
    });

    it('refuses a lease request without job_id', async () => {
      const answer = await requestLease(server, { addon_id: 'visuals', ttl_sec: 30 });
      expectError(answer, { status: 400, code: 'invalid_request', field: 'job_id' });
    });
  });
});

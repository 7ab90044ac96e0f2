import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  claim,
  eventsOf,
  expectError,
  expectTime,
  expectUuid,
  get,
  only,
  read,
  submit,
} from '../../support/jobs-api.ts';
import { between, capacityOf, expectReplay, setCapacity } from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';
import {
  beat,
  clearAway,
  complete,
  expectSystemJob,
  fail,
  granted,
  readSystem,
  request,
  systemJob,
  systemLeaseFields,
  systemPath,
} from '../../support/system-api.ts';

onEveryEngine((engine) => {
  describe('the request contract: request for a job and its lease', () => {
    const share = shareServer(engine, { capacityTotal: 50 });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    after(() => share.leave());

    const jobIds: string[] = [];
    const job = async (fields: object = {}) => {
      const found = await systemJob(server, fields);
      jobIds.push(found.job_id);
      return found;
    };
    afterEach(async () => {
      await clearAway(server, jobIds);
      const { body } = await setCapacity(server, { total: 50, busy_rating: 0 });
      expect(body).to.include({ used: 0, available: 50 });
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    it("answers the contract's example of a request with the lease and the job", async () => {
      const { job_id, created_at } = await job();
      const answer = await request(server, '{ "worker_id": "worker-123", "max_units": 8 }');
      expect(answer.status).to.equal(200);
      expect(answer.headers.get('content-type')).to.match(/^application\/json/);
      expect(answer.body).to.have.all.keys('denied', 'lease', 'job', 'heartbeat_within_ms');
      const { denied, lease, job: leased } = answer.body;
      expect(denied).to.equal(false);
      expectUuid(lease.lease_id);
      expectTime(lease.issued_at);
      expect(only(lease, systemLeaseFields)).to.deep.equal({
        lease_id: lease.lease_id,
        job_id,
        worker_id: 'worker-123',
        capacity_units: 4,
        issued_at: lease.issued_at,
        expires_at: new Date(Date.parse(lease.issued_at) + 60_000).toISOString(),
        last_heartbeat: lease.issued_at,
      });
      expect(lease).to.include({ attempt: 1 });
      expect(lease.fence).to.be.a('number').and.to.be.above(0);
      expect(lease.lease_token).to.be.a('string').and.not.to.equal('');
      expectSystemJob(leased, {
        type: 'generic',
        priority: 'normal',
        requested_units: 4,
        unique: false,
        state: 'leased',
        payload: {},
        idempotency_key: null,
        tags: [],
        max_runtime_s: null,
        lease_id: lease.lease_id,
      });
      expect(leased).to.include({ job_id, created_at, addon_id: 'default', attempts: 1 });
      expect(await readSystem(server, job_id)).to.deep.equal({ job: leased, result: null });
    });

    it('shows the token only in the grant of a request', async () => {
      const { job_id } = await job();
      const { lease } = await granted(server);
      const places = [
        await get(server, `${systemPath}/jobs/${job_id}`),
        await get(server, `/api/scheduler/jobs/${job_id}/events`),
        await beat(server, lease.lease_id),
        await complete(server, lease.lease_id),
      ];
      for (const { status, text } of places) {
        expect(status, text).to.equal(200);
        expect(text).not.to.include(lease.lease_token).and.not.to.include('lease_token');
      }
    });

    /** A denial has a reason, a usable retry hint, and nothing else. */
    const expectDenial = (body: Record<string, unknown>, reason: string) => {
      const { retry_after_ms } = body;
      expect(body).to.deep.equal({ denied: true, reason, retry_after_ms });
      expect(Number.isInteger(retry_after_ms), `${retry_after_ms}`).to.equal(true);
      expect(retry_after_ms).to.be.within(1, 60_000);
    };

    it('denies a request with a retry hint if no job is queued', async () => {
      const { status, body } = await request(server);
      expect(status).to.equal(200);
      expectDenial(body, 'No jobs available');
    });

    it("denies a request as in the contract's example if no capacity is left", async () => {
      await setCapacity(server, { busy_rating: 8 });
      for (const requested_units of [4, 6, 1]) await job({ requested_units });
      await granted(server);
      await granted(server);
      const { status, body } = await request(server);
      expect(status).to.equal(200);
      expectDenial(body, 'No capacity (busy=8, usable=10, leased=10)');
      expect((await readSystem(server, jobIds[2] ?? '')).job).to.include({ state: 'queued', attempts: 0 });
    });

    it('denies a request at the highest busy rating', async () => {
      await job();
      await setCapacity(server, { busy_rating: 10 });
      expectDenial((await request(server)).body, 'No capacity (busy=10, usable=0, leased=0)');
    });

    it('denies a request if the next job does not fit, and lets no smaller job overtake it', async () => {
      const first = await job({ requested_units: 30, priority: 'high' });
      const large = await job({ requested_units: 30 });
      const small = await job({ requested_units: 1 });
      const { lease } = await granted(server);
      expect(lease.job_id).to.equal(first.job_id);
      for (const _ of [1, 2]) {
        const { body } = await request(server);
        expectDenial(body, 'Capacity exceeded: used=30, requested=30, capacity=50');
      }
      for (const { job_id } of [large, small]) {
        expect((await readSystem(server, job_id)).job).to.include({ state: 'queued', attempts: 0 });
      }
      await complete(server, lease.lease_id);
      expect((await granted(server)).job.job_id).to.equal(large.job_id);
      expect((await granted(server)).job.job_id).to.equal(small.job_id);
    });

    it('grants no job of more than max_units, and one of exactly as many', async () => {
      const large = await job({ requested_units: 9, priority: 'urgent' });
      const small = await job({ requested_units: 8 });
      expect((await granted(server, { max_units: 8 })).job.job_id).to.equal(small.job_id);
      expectDenial((await request(server, { max_units: 8 })).body, 'No jobs available');
      expect((await granted(server, { max_units: 9 })).job.job_id).to.equal(large.job_id);
    });

    it('grants jobs by priority, and the oldest first within a priority', async () => {
      const order = ['low', 'normal', 'urgent', 'high', 'normal', 'urgent', 'low', 'high'];
      for (const [n, priority] of order.entries()) {
        await job({ requested_units: 1, type: `type-${n % 3}`, priority, payload: { n } });
      }
      const told = [];
      for (const _ of order) told.push((await granted(server)).job.payload.n);
      expect(told).to.deep.equal([2, 5, 3, 7, 1, 4, 0, 6]);
    });

    it('moves the job from queued to leased, and to running with the first heartbeat', async () => {
      const { job_id } = await job();
      expect((await readSystem(server, job_id)).job.state).to.equal('queued');
      const { lease } = await granted(server);
      expect((await readSystem(server, job_id)).job.state).to.equal('leased');
      expect((await read(server, job_id)).job.state, 'in the words of the queue contract').to.equal(
        'RUNNING',
      );
      await beat(server, lease.lease_id);
      expect((await readSystem(server, job_id)).job.state).to.equal('running');
      const events = await eventsOf(server, job_id);
      expect(events.map(({ type }) => type)).to.deep.equal(['JOB_SUBMITTED', 'LEASE_GRANTED', 'JOB_RUNNING']);
      expect(events[1].data).to.include({ from: 'QUEUED', to: 'RUNNING', by: 'worker-123' });
    });

    it('skips a unique job for a worker that already holds a lease', async () => {
      const plain = await job({ priority: 'urgent' });
      const unique = await job({ unique: true, priority: 'high' });
      const other = await job();
      const first = await granted(server);
      expect(first.job.job_id).to.equal(plain.job_id);
      const second = await granted(server);
      expect(second.job.job_id, 'the job behind the unique one').to.equal(other.job_id);
      expectDenial((await request(server)).body, 'No jobs available');
      const elsewhere = await granted(server, { worker_id: 'worker-456' });
      expect(elsewhere.job).to.include({ job_id: unique.job_id, unique: true });
      const another = await job({ unique: true });
      for (const { lease } of [first, second]) await complete(server, lease.lease_id);
      expect((await granted(server)).job.job_id).to.equal(another.job_id);
    });

    it('returns the same grant for the same request_id, and another job without one', async () => {
      for (const _ of [1, 2, 3]) await job();
      const first = await granted(server, { request_id: 'lost answer' });
      const again = await granted(server, { request_id: 'lost answer' });
      expectReplay(again, first);
      const seen = [first, await granted(server, { request_id: 'next' }), await granted(server)];
      expect(new Set(seen.map(({ lease }) => lease.lease_id)).size).to.equal(3);
      const { body } = await request(server, { request_id: 'lost answer', worker_id: 'worker-456' });
      expectDenial(body, 'No jobs available');
      await complete(server, first.lease.lease_id);
      expectDenial((await request(server, { request_id: 'lost answer' })).body, 'No jobs available');
    });

    it('waits for a job for up to wait_ms', async () => {
      const since = performance.now();
      const { body } = await request(server, { wait_ms: 200 });
      expectDenial(body, 'No jobs available');
      expect(performance.now() - since).to.be.within(190, 5_000);
      const waiting = granted(server, { wait_ms: 60_000 });
      await new Promise((resolve) => setTimeout(resolve, 50));
      const { job_id } = await job();
      expect((await waiting).job.job_id).to.equal(job_id);
    });

    it('waits for capacity for up to wait_ms', async () => {
      await job({ requested_units: 50 });
      const { lease } = await granted(server);
      const { job_id } = await job();
      const waiting = granted(server, { wait_ms: 60_000, worker_id: 'worker-456' });
      await new Promise((resolve) => setTimeout(resolve, 50));
      await fail(server, lease.lease_id);
      expect((await waiting).job.job_id).to.equal(job_id);
    });

    it('grants a job only to a worker with the required capabilities', async () => {
      const { job_id } = await job({ constraints: { gpu_required: true, cpu_heavy: true } });
      for (const constraints_capabilities of [
        null,
        {},
        { gpu_available: false },
        { gpu_available: true, cpu_heavy: false },
      ]) {
        const { body } = await request(server, { constraints_capabilities });
        expectDenial(body, 'No jobs available');
      }
      const { job: leased } = await granted(server, { constraints_capabilities: { gpu_available: true } });
      expect(leased.job_id).to.equal(job_id);
    });

    it('grants only jobs of the requested submitter and types', async () => {
      const { job_id } = await job({ addon_id: 'one', type: 'render' });
      for (const choice of [{ addon_id: 'two' }, { accept_job_types: ['other'] }]) {
        expectDenial((await request(server, choice)).body, 'No jobs available');
      }
      const choice = { addon_id: 'one', accept_job_types: ['other', 'render'] };
      expect((await granted(server, choice)).job.job_id).to.equal(job_id);
    });

    it('grants no job of a stream, no claimed job and no delayed job', async () => {
      await job({ stream: 'renders' });
      await job({ run_at: '2999-01-01T00:00:00Z' });
      const claimed = await submit(server, {});
      jobIds.push(claimed.job_id);
      await claim(server, claimed.addon_id);
      expect((await readSystem(server, claimed.job_id)).job.state).to.equal('queued');
      expectDenial((await request(server)).body, 'No jobs available');
    });

    it('skips a job that costs more than the total', async () => {
      const never = await job({ requested_units: 51, priority: 'urgent' });
      const { job_id } = await job();
      for (const expected of [job_id, undefined]) {
        expect((await request(server)).body.job?.job_id).to.equal(expected);
      }
      expect((await readSystem(server, never.job_id)).job.state).to.equal('queued');
      const types = (await eventsOf(server, never.job_id)).map(({ type }) => type);
      expect(types).to.deep.equal(['JOB_SUBMITTED', 'JOB_UNSCHEDULABLE']);
      await setCapacity(server, { total: 55 });
      expect((await granted(server)).job.job_id, 'once there is more').to.equal(never.job_id);
    });

    it('never grants a job twice nor more units than the total to concurrent requests', async () => {
      for (let n = 0; n < 20; n++) await job({ requested_units: 3 });
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, n) => request(server, { worker_id: `w${n}` })),
      );
      const grants = answers.filter(({ body }) => !body.denied);
      expect(new Set(grants.map(({ body }) => body.job.job_id)).size).to.equal(grants.length);
      expect(grants).to.have.length(16);
      expect((await capacityOf(server)).used).to.equal(48);
      for (const { body } of answers) {
        if (body.denied) expectDenial(body, 'Capacity exceeded: used=48, requested=3, capacity=50');
      }
    });

    it('treats null in fields of a request as absent, and ignores unknown fields', async () => {
      const optional = [
        'max_units',
        'constraints_capabilities',
        'addon_id',
        'accept_job_types',
        'wait_ms',
        'request_id',
        'ttl_sec',
      ];
      const nulls = Object.fromEntries(optional.map((field) => [field, null]));
      const { job_id } = await job();
      const { job: leased, lease } = await granted(server, { ...nulls, unknown: ['ignored'] });
      expect(leased.job_id).to.equal(job_id);
      expect(between(lease.issued_at, lease.expires_at)).to.equal(60_000);
    });

    it('refuses a request without worker_id', async () => {
      const answer = await request(server, '{ "max_units": 8 }');
      expectError(answer, { status: 400, code: 'invalid_request', field: 'worker_id' });
    });
  });
});

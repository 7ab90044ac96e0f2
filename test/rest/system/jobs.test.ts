import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  claim,
  expectError,
  expectTime,
  get,
  newAddon,
  nowhere,
  read,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { plenty } from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';
import {
  beat,
  complete,
  expectSystemJob,
  fail,
  granted,
  grantedJob,
  readSystem,
  submitSystem,
  systemJob,
  systemPath,
} from '../../support/system-api.ts';

onEveryEngine((engine) => {
  describe('jobs over the request contract', () => {
    const share = shareServer(engine, { capacityTotal: plenty });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => share.leave());

    const least = { type: 'generic', requested_units: 4 };

    it('submits a job with 201, and requires only type and requested_units', async () => {
      const answer = await submitSystem(server, least);
      expect(answer.status, answer.text).to.equal(201);
      expect(Object.keys(answer.body)).to.deep.equal(['job']);
      expectSystemJob(answer.body.job, {
        type: 'generic',
        priority: 'normal',
        requested_units: 4,
        unique: false,
        state: 'queued',
        payload: {},
        idempotency_key: null,
        tags: [],
        max_runtime_s: null,
        lease_id: null,
      });
      expect(answer.body.job).to.include({ addon_id: 'default', attempts: 0, max_attempts: 1 });
      await cancel(server, answer.body.job.job_id);
    });

    it('shows the same jobs as the queue contract', async () => {
      const addon_id = newAddon();
      const others = {
        addon_id,
        unique: true,
        tags: ['b', 'a'],
        max_runtime_s: 60,
        payload: { deep: [{ er: null }] },
        constraints: { gpu_required: true },
        stream: 'renders',
        max_attempts: 7,
        retry_backoff_s: 0,
        run_at: '2999-12-31T23:59:59.500Z',
      };
      const words = { type: 'render', requested_units: 9, priority: 'urgent', idempotency_key: 'key' };
      const { job_id } = await systemJob(server, { ...others, ...words, job_type: 'x', cost_units: 0 });
      const { job: mine } = await readSystem(server, job_id);
      expect(mine).to.deep.include({ ...others, ...words });
      const { job: theirs } = await read(server, job_id);
      expect(theirs).to.deep.include({
        ...others,
        job_type: 'render',
        cost_units: 9,
        priority: 'URGENT',
        client_request_id: 'key',
      });
      expect(mine.next_retry_at).to.equal(theirs.next_retry_at);
    });

    for (const priority of ['low', 'normal', 'high', 'urgent']) {
      it(`accepts the priority ${priority} in the request contract`, async () => {
        expect(await systemJob(server, { addon_id: newAddon(), priority })).to.include({ priority });
      });
    }

    it('treats null in optional fields of a job as absent', async () => {
      const optional = [
        'priority',
        'constraints',
        'payload',
        'idempotency_key',
        'stream',
        'unique',
        'tags',
        'max_runtime_s',
        'max_attempts',
        'retry_backoff_s',
        'run_at',
      ];
      const addon_id = newAddon();
      const nulls = Object.fromEntries(optional.map((field) => [field, null]));
      const own = ['job_id', 'created_at', 'updated_at'];
      const rest = (job: object) => Object.entries(job).filter(([field]) => !own.includes(field));
      const plain = await systemJob(server, { addon_id });
      expect(rest(await systemJob(server, { addon_id, ...nulls }))).to.deep.equal(rest(plain));
      const { addon_id: other, job_id } = await systemJob(server, { addon_id: null });
      expect(other).to.equal('default');
      await cancel(server, job_id);
    });

    it('refuses a duplicate idempotency_key with 409 and the first job', async () => {
      const addon_id = newAddon();
      const again = { ...least, addon_id, idempotency_key: 'key' };
      const { job_id } = await systemJob(server, again);
      const answer = await submitSystem(server, again);
      expectError(answer, { status: 409, code: 'duplicate_request', field: 'idempotency_key' });
      expect(answer.body.job_id).to.equal(job_id);
      expect(answer.text).not.to.include('client_request_id');
      await submit(server, { addon_id: newAddon(), client_request_id: 'key' });
    });

    for (const field of ['type', 'requested_units']) {
      it(`refuses a job without ${field} with 400, whatever the queue contract calls it`, async () => {
        const body: Record<string, unknown> = { ...least, job_type: 'generic', cost_units: 4 };
        delete body[field];
        expectError(await submitSystem(server, body), { status: 400, code: 'invalid_request', field });
      });
    }

    it('names every state as the request contract does', async () => {
      const stateOf = async (jobId: string) => (await readSystem(server, jobId)).job.state;
      const { job_id, addon_id } = await submit(server, {});
      expect(await stateOf(job_id)).to.equal('queued');
      await claim(server, addon_id);
      for (const state of ['CLAIMED', 'PREPARING', 'LEASE_PENDING']) {
        await status(server, job_id, { state });
        expect((await read(server, job_id)).job.state).to.equal(state);
        expect(await stateOf(job_id)).to.equal('queued');
      }
      await cancel(server, job_id);
      expect(await stateOf(job_id)).to.equal('canceled');
    });

    it('returns a job with its result, and 404 for an unknown job', async () => {
      const { lease, job } = await grantedJob(server);
      expect((await readSystem(server, job.job_id)).result).to.equal(null);
      await complete(server, lease.lease_id, { result: { path: '/out.jpg' }, metrics: { ms: 5 } });
      const { result } = await readSystem(server, job.job_id);
      expect(result).to.include({ job_id: job.job_id, status: 'SUCCEEDED', error: null, attempts: 1 });
      expect(result.result_data).to.deep.equal({ path: '/out.jpg' });
      expect(result.metrics).to.deep.equal({ ms: 5 });
      expect(result.started_at).to.equal(lease.issued_at);
      for (const jobId of [nowhere, 'nonsense']) {
        const answer = await get(server, `${systemPath}/jobs/${jobId}`);
        expectError(answer, { status: 404, code: 'job_not_found' });
      }
    });

    it('completes a job once: a repetition with the token gets the same answer, others 409', async () => {
      const { lease } = await grantedJob(server);
      const said = { lease_token: lease.lease_token, result: 1 };
      const first = await complete(server, lease.lease_id, said);
      expect((await complete(server, lease.lease_id, said)).body).to.deep.equal(first.body);
      for (const answer of [
        await complete(server, lease.lease_id),
        await fail(server, lease.lease_id, { lease_token: lease.lease_token }),
      ]) {
        expectError(answer, { status: 409, code: 'lease_not_active' });
      }
    });

    it('requeues a job whose failure may be retried if attempts are left', async () => {
      const { lease, job } = await grantedJob(server, { max_attempts: 2, retry_backoff_s: 0 });
      await beat(server, lease.lease_id);
      const error = { code: 'FLAKY', message: 'try again', retryable: true };
      const said = { lease_token: lease.lease_token, error };
      const first = await fail(server, lease.lease_id, said);
      expect(first.status, first.text).to.equal(200);
      expect(first.body).to.have.all.keys('ok', 'job', 'requeued');
      expect(first.body).to.include({ ok: true, requeued: true });
      expect(first.body.job).to.include({ state: 'queued', attempts: 1 });
      expect((await readSystem(server, job.job_id)).result).to.equal(null);
      const { lease: next } = await granted(server, { addon_id: job.addon_id });
      expect(next).to.include({ job_id: job.job_id, attempt: 2 });
      expect(next.fence).to.be.above(lease.fence);
      const last = await fail(server, next.lease_id, { error });
      expect(last.body).to.include({ ok: true, requeued: false });
      expect(last.body.job).to.include({ state: 'failed', attempts: 2 });
      const { result } = await readSystem(server, job.job_id);
      expect(result).to.deep.include({ status: 'FAILED', error: 'try again', error_detail: error });
      const late = await fail(server, lease.lease_id, said);
      expect(late.body, 'the first failure, told again').to.include({ ok: true, requeued: true });
    });

    it('waits for the backoff before the next attempt', async () => {
      const { lease, job } = await grantedJob(server, { max_attempts: 2, retry_backoff_s: 600 });
      const { body } = await fail(server, lease.lease_id, { error: { retryable: true } });
      expectTime(body.job.next_retry_at, { of: Date.now() + 525_000, withinMs: 80_000 });
      expect((await readSystem(server, job.job_id)).job.state).to.equal('queued');
    });

    for (const error of [undefined, null, 'text', { message: 'no' }, { message: 'no', retryable: false }]) {
      it(`fails a job for good with the error ${JSON.stringify(error)}`, async () => {
        const { lease, job } = await grantedJob(server, { max_attempts: 5 });
        const { body } = await fail(server, lease.lease_id, { error });
        expect(body).to.include({ ok: true, requeued: false });
        expect(body.job.state).to.equal('failed');
        const text = typeof error === 'object' ? (error?.message ?? null) : (error ?? null);
        expect((await readSystem(server, job.job_id)).result.error).to.equal(text);
      });
    }

    it('lets only the worker that holds the lease complete or fail a job', async () => {
      const { lease, job } = await grantedJob(server);
      for (const end of [complete, fail]) {
        const stranger = await end(server, lease.lease_id, { worker_id: 'worker-456' });
        expectError(stranger, { status: 403, code: 'worker_mismatch' });
        const thief = await end(server, lease.lease_id, { lease_token: nowhere });
        expectError(thief, { status: 403, code: 'token_mismatch' });
        const unknown = await end(server, nowhere);
        expectError(unknown, { status: 404, code: 'lease_not_found' });
        const nobody = await end(server, lease.lease_id, '{}');
        expectError(nobody, { status: 400, code: 'invalid_request', field: 'worker_id' });
      }
      expect((await readSystem(server, job.job_id)).job.state).to.equal('leased');
    });
  });
});

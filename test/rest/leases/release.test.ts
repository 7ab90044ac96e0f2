import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  claim,
  eventsOf,
  expectError,
  expectJobIntent,
  expectTime,
  jobResultFields,
  nowhere,
  only,
  plainJob,
  post,
  read,
  retry,
  submit,
} from '../../support/jobs-api.ts';
import {
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
  describe('the queue contract: releasing a lease', () => {
    let server: TestServer;
    holdSharedServer(engine, { capacityTotal: plenty }, (shared) => {
      server = shared;
    });

    it("answers the contract's example of a release with 200, lease, job and result", async () => {
      const { addon_id, job_id } = await submit(server, {});
      await claim(server, addon_id, { worker_id: 'visuals-worker-01' });
      const grant = (await post(server, `${leasePath}/request`, { job_id, ttl_sec: 30 })).body;
      const { lease_id, granted_at } = grant.lease;
      const answer = await release(
        server,
        lease_id,
        `{
          "job_id": "${job_id}",
          "worker_id": "visuals-worker-01",
          "status": "SUCCEEDED",
          "result_data": { "path": "/runtime/published/current.jpg" },
          "error": null,
          "metrics": { "runtime_ms": 41234, "peak_mem_mb": 2870 }
        }`,
      );
      expect(answer.status, answer.text).to.equal(200);
      expect(answer.headers.get('content-type')).to.match(/^application\/json/);
      expect(answer.body).to.have.all.keys('lease', 'job', 'result');
      const { lease, job, result } = answer.body;
      expectLease(lease, { job_id, addon_id, cost_units: 30, ttl_sec: 30, state: 'RELEASED' });
      expect(lease).to.include({ lease_id, granted_at, attempt: 1, release_status: 'SUCCEEDED' });
      expectTime(lease.ended_at);
      expectJobIntent(
        job,
        plainJob({ addon_id, state: 'DONE', claimed_by: 'visuals-worker-01', lease_id, attempts: 1 }),
      );
      expect(only(result, jobResultFields)).to.deep.equal({
        job_id,
        status: 'SUCCEEDED',
        result_data: { path: '/runtime/published/current.jpg' },
        error: null,
        started_at: granted_at,
        finished_at: result.finished_at,
        attempts: 1,
      });
      expectTime(result.finished_at, { of: Date.parse(lease.ended_at), withinMs: 1_000 });
      expect(result.error_detail).to.equal(null);
      expect(result.metrics).to.deep.equal({ runtime_ms: 41234, peak_mem_mb: 2870 });
      expect(await read(server, job_id)).to.deep.equal({ job, result });
      expect(await readLease(server, lease_id)).to.deep.equal(lease);
    });

    const ends = [
      ['SUCCEEDED', 'DONE', 'JOB_DONE'],
      ['FAILED', 'FAILED', 'JOB_FAILED'],
      ['CANCELED', 'CANCELED', 'JOB_CANCELED'],
      ['TIMEOUT', 'TIMEOUT', 'JOB_TIMEOUT'],
    ];
    for (const [status = '', state = '', event = ''] of ends) {
      it(`ends the job of a release with ${status} as ${state}`, async () => {
        const { lease, job } = await leasedJob(server);
        const { body } = await release(server, lease.lease_id, { status });
        expect(body.lease).to.include({ state: 'RELEASED', release_status: status });
        expect(body.job.state).to.equal(state);
        expect(body.result).to.include({ status, attempts: 1, result_data: null, error: null });
        const events = await eventsOf(server, job.job_id);
        expect(events.map(({ type }) => type)).to.include.members(['LEASE_RELEASED', event]);
        const last = events.find(({ type }) => type === event);
        expect(last.data).to.include({ from: 'RUNNING', to: state, by: 'worker-1' });
      });
    }

    const results: unknown[] = [
      null,
      {},
      [],
      'text',
      '',
      0,
      -1.5,
      true,
      false,
      [null, { deep: [{ er: 'ü☃' }] }],
    ];
    for (const result_data of results) {
      it(`stores ${JSON.stringify(result_data)} as the result of a released job`, async () => {
        const { lease, job } = await leasedJob(server);
        const { body } = await release(server, lease.lease_id, { result_data });
        expect(body.result.result_data).to.deep.equal(result_data);
        expect((await read(server, job.job_id)).result).to.deep.equal(body.result);
      });
    }

    const full = { code: 'OOM', message: 'out of memory', stack: 'at render', retryable: false, more: [1] };
    const errors: [string, unknown, string | null, unknown][] = [
      ['text', 'out of memory', 'out of memory', null],
      ['null', null, null, null],
      ['an object', full, 'out of memory', full],
      ['an object without a message', { code: 'OOM' }, 'OOM', { code: 'OOM' }],
      ['an empty object', {}, null, {}],
    ];
    for (const [what, error, text, detail] of errors) {
      it(`stores an error that is ${what} for a released job`, async () => {
        const { lease, job } = await leasedJob(server);
        const { body } = await release(server, lease.lease_id, { status: 'FAILED', error });
        expect(body.result).to.deep.include({ status: 'FAILED', error: text, error_detail: detail });
        expect((await read(server, job.job_id)).result).to.deep.equal(body.result);
      });
    }

    it('requires only worker_id and status of a release, and treats null in others as absent', async () => {
      const nulls = { job_id: null, lease_token: null, result_data: null, error: null, metrics: null };
      for (const rest of [{}, { ...nulls, unknown: 'ignored' }]) {
        const { lease } = await leasedJob(server);
        const { status, body } = await release(server, lease.lease_id, rest);
        expect(status).to.equal(200);
        expect(body.result).to.include({ result_data: null, error: null, error_detail: null, metrics: null });
      }
    });

    it('ends a job for good with FAILED, whatever attempts are left and the error contains', async () => {
      const { lease } = await leasedJob(server, { max_attempts: 5 });
      const error = { message: 'flaky', retryable: true };
      const { body } = await release(server, lease.lease_id, { status: 'FAILED', error });
      expect(body.job).to.include({ state: 'FAILED', attempts: 1, next_retry_at: null });
      expect(body.result).to.deep.include({ status: 'FAILED', error: 'flaky', error_detail: error });
    });

    it('ends a job as CANCELED if a client asked for that, and keeps the released result', async () => {
      const { lease, job } = await leasedJob(server);
      await cancel(server, job.job_id, { reason: 'user aborted' });
      const { body } = await release(server, lease.lease_id, { result_data: { half: 'done' } });
      expect(body.job.state).to.equal('CANCELED');
      expect(body.lease.state).to.equal('RELEASED');
      expect(body.result.status).to.equal('CANCELED');
      expect(body.result.result_data).to.deep.equal({ half: 'done' });
      const events = await eventsOf(server, job.job_id);
      const reasons = events
        .filter(({ data }) => 'reason' in data)
        .map(({ type, data }) => [type, data.reason]);
      expect(reasons).to.deep.equal([
        ['JOB_CANCEL_REQUESTED', 'user aborted'],
        ['JOB_CANCELED', 'a client requested the cancellation'],
      ]);
    });

    it('answers a repeated release with the token in the same way', async () => {
      const { lease, job } = await leasedJob(server);
      const said = { lease_token: lease.lease_token, result_data: { n: 1 } };
      const first = await release(server, lease.lease_id, said);
      const events = await eventsOf(server, job.job_id);
      const again = await release(server, lease.lease_id, said);
      expect(again.status, again.text).to.equal(200);
      expect(again.body).to.deep.equal(first.body);
      expect(await eventsOf(server, job.job_id)).to.deep.equal(events);
    });

    it('refuses another status for a released lease with 409, and writes nothing', async () => {
      const { lease, job } = await leasedJob(server);
      const first = await release(server, lease.lease_id, { lease_token: lease.lease_token });
      const other = { lease_token: lease.lease_token, status: 'FAILED', error: 'late' };
      const answer = await release(server, lease.lease_id, other);
      expectError(answer, { status: 409, code: 'lease_not_active' });
      expect(answer.body.detail)
        .to.match(/released/)
        .and.to.include(first.body.lease.ended_at);
      expect(await read(server, job.job_id)).to.deep.equal({
        job: first.body.job,
        result: first.body.result,
      });
    });

    it('refuses the release of a lease whose job has a newer lease with 409', async () => {
      const { lease, job } = await leasedJob(server);
      await release(server, lease.lease_id, { status: 'FAILED' });
      await retry(server, job.job_id);
      await claim(server, job.addon_id);
      const next = (await post(server, `${leasePath}/request`, { job_id: job.job_id })).body;
      expect(next.lease.fence).to.be.above(lease.fence);
      expect(next.lease.attempt).to.equal(2);
      const stale = await release(server, lease.lease_id, { result_data: 'stale' });
      expectError(stale, { status: 409, code: 'lease_not_active' });
      expectError(await heartbeat(server, lease.lease_id), { status: 409, code: 'lease_not_active' });
      expect(await read(server, job.job_id)).to.deep.equal({ job: next.job, result: null });
      expect((await release(server, next.lease.lease_id)).body.result.attempts).to.equal(2);
    });

    it('applies a release once for many requests at the same time', async () => {
      const { lease, job } = await leasedJob(server);
      const said = { lease_token: lease.lease_token };
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => release(server, lease.lease_id, said)),
      );
      for (const { status, body, text } of answers) {
        expect(status, text).to.equal(200);
        expect(body).to.deep.equal(answers[0]?.body);
      }
      const types = await typesOf(server, job.job_id);
      expect(types.filter((type) => type === 'JOB_DONE')).to.have.length(1);
    });

    it('answers 404 for the release of an unknown lease', async () => {
      for (const leaseId of [nowhere, 'nonsense']) {
        expectError(await release(server, leaseId), { status: 404, code: 'lease_not_found' });
      }
    });

    it('refuses a release of another worker or with another token with 403', async () => {
      const { lease, job } = await leasedJob(server);
      const stranger = await release(server, lease.lease_id, { worker_id: 'worker-2' });
      expectError(stranger, { status: 403, code: 'worker_mismatch' });
      for (const lease_token of [nowhere, 'nonsense', '']) {
        const answer = await release(server, lease.lease_id, { lease_token });
        expectError(answer, { status: 403, code: 'token_mismatch' });
      }
      expect((await read(server, job.job_id)).job.state).to.equal('RUNNING');
    });

    it('refuses a release with the job_id of another job with 409', async () => {
      const { lease, job } = await leasedJob(server);
      for (const job_id of [nowhere, 'nonsense']) {
        const answer = await release(server, lease.lease_id, { job_id });
        expectError(answer, { status: 409, code: 'job_mismatch' });
      }
      expect((await release(server, lease.lease_id, { job_id: job.job_id })).status).to.equal(200);
    });

    for (const field of ['worker_id', 'status']) {
      it(`refuses a release without ${field}`, async () => {
        const { lease } = await leasedJob(server);
        const body: Record<string, string> = { worker_id: 'worker-1', status: 'SUCCEEDED' };
        delete body[field];
        const answer = await release(server, lease.lease_id, JSON.stringify(body));
        expectError(answer, { status: 400, code: 'invalid_request', field });
      });
    }
  });
});

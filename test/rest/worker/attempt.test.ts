import { expect } from 'chai';
import { type Body, cancel, expectTime, get, nowhere, post, read } from '../../support/jobs-api.ts';
import { plenty, typesOf } from '../../support/leases-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { onEveryTransport } from '../../support/transports.ts';
import {
  beat,
  claimedFrom,
  claimFrom,
  complete,
  enqueue,
  fail,
  newStream,
  ownerOf,
  runningJob,
  workerPath,
} from '../../support/worker-api.ts';

onEveryTransport(({ start }) => {
  describe('an attempt of the worker contract', () => {
    let server: TestServer;
    /** A server on which leases expire during a test. */
    let hasty: TestServer;
    before(async () => {
      server = await start({ settings: { leaseTtlS: 60, capacityTotal: plenty } });
      hasty = await start({ settings: { leaseTtlS: 1, capacityTotal: plenty } });
    });
    afterEach(() => {
      for (const { complaints } of [server, hasty]) expect(complaints.splice(0)).to.deep.equal([]);
    });
    after(() => Promise.all([server, hasty].map((one) => one.stop())));

    const historyOf = async (on: TestServer, jobId: string) => {
      const events: string[] = await typesOf(on, jobId);
      return { events, ...(await read(on, jobId)) };
    };

    /** Waits until an attempt has expired. */
    const expire = (claim: Body) =>
      eventually('the lease has expired', async () => {
        const { job } = await read(hasty, claim.job_id);
        return job.state === 'RUNNING' ? undefined : true;
      });

    describe('heartbeats of an attempt', () => {
      it('extends the lease of an attempt, and returns its new expiry', async () => {
        const claim = await runningJob(server);
        const { status, text, body } = await beat(server, claim, { progress: 0.5 });
        expect(status, text).to.equal(200);
        const { lease_expires_at, ttl_remaining_ms, ...rest } = body;
        expect(rest).to.deep.equal({ ok: true, cancel_requested: false, drain: false });
        expectTime(lease_expires_at, { of: Date.now() + 60_000, withinMs: 5_000 });
        expect(Date.parse(lease_expires_at)).to.be.at.least(Date.parse(claim.lease_expires_at));
        expect(ttl_remaining_ms).to.equal(60_000);
        expect((await read(server, claim.job_id)).job.progress).to.equal(0.5);
        const named = await beat(server, claim, { attempt_id: claim.attempt_id });
        expect([named.status, named.body.ok]).to.deep.equal([200, true]);
      });

      it("reports a cancellation request in the answer to an attempt's heartbeat", async () => {
        const claim = await runningJob(server);
        await cancel(server, claim.job_id);
        expect((await beat(server, claim)).body.cancel_requested).to.equal(true);
      });

      it('refuses heartbeats of other workers, and extends nothing', async () => {
        const claim = await runningJob(server);
        const asked: [object, number, string][] = [
          [{ worker_id: 'worker-2' }, 403, 'worker_mismatch'],
          [{ lease_token: nowhere }, 403, 'token_mismatch'],
          [{ lease_token: 'no uuid' }, 403, 'token_mismatch'],
          [{ lease_token: nowhere, attempt_id: claim.attempt_id }, 403, 'token_mismatch'],
          [{ job_id: nowhere }, 404, 'job_not_found'],
          [{ job_id: 'no uuid' }, 404, 'job_not_found'],
          [{ attempt_id: nowhere }, 404, 'lease_not_found'],
          [{ lease_token: undefined }, 400, 'invalid_request'],
          [{ worker_id: undefined }, 400, 'invalid_request'],
          [{ job_id: undefined }, 400, 'invalid_request'],
        ];
        for (const [fields, status, code] of asked) {
          const answer = await beat(server, claim, fields);
          expect([answer.status, answer.body.ok, answer.body.code], answer.text).to.deep.equal([
            status,
            false,
            code,
          ]);
          expect(answer.body.detail).to.be.a('string');
        }
      });

      it('answers a late heartbeat with 409 and the state of the lease', async () => {
        const claim = await runningJob(hasty, { max_attempts: 2 });
        await expire(claim);
        const late = await beat(hasty, claim);
        expect([late.status, late.body.ok, late.body.code]).to.deep.equal([409, false, 'lease_not_active']);
        expect(late.body.detail).to.match(/expired at/);
        const successor = await claimedFrom(hasty, [claim.name]);
        expect((await beat(hasty, claim)).status, 'beside the successor').to.equal(409);
        expect((await beat(hasty, successor)).status).to.equal(200);
      });
    });

    describe('completion of an attempt', () => {
      it('ends the job with its result, and allows the worker to acknowledge the message', async () => {
        const claim = await runningJob(server);
        const result = { artifacts: ['s3://bucket/key'], timings: { total_ms: 12 } };
        const { status, body } = await complete(server, claim, { result, metrics: { rows: 3 } });
        expect([status, body]).to.deep.equal([200, { ok: true, ack: true }]);
        const { job, result: kept } = await read(server, claim.job_id);
        expect([job.state, kept.result_data, kept.metrics]).to.deep.equal(['DONE', result, { rows: 3 }]);
      });

      it('answers a repeated completion in the same way, and writes it once', async () => {
        const claim = await runningJob(server);
        const answers = await Promise.all(
          [1, 2, 3, 4].map((n) => complete(server, claim, { result: { n } })),
        );
        const before = await historyOf(server, claim.job_id);
        answers.push(await complete(server, claim, { result: { n: 5 } }));
        for (const { status, body } of answers) {
          expect([status, body]).to.deep.equal([200, { ok: true, ack: true }]);
        }
        expect(await historyOf(server, claim.job_id)).to.deep.equal(before);
        expect(before.events.filter((type: string) => type === 'JOB_DONE')).to.have.length(1);
      });

      it('refuses to fail a completed attempt, but lets its message be acknowledged', async () => {
        const claim = await runningJob(server);
        await complete(server, claim);
        const before = await historyOf(server, claim.job_id);
        const { status, body } = await fail(server, claim);
        const { detail, ...rest } = body;
        expect(status).to.equal(409);
        expect(rest).to.deep.equal({
          ok: false,
          ack: true,
          requeued: false,
          dlq: false,
          code: 'lease_not_active',
        });
        expect(detail).to.match(/released at/);
        expect(await historyOf(server, claim.job_id)).to.deep.equal(before);
      });

      it('writes nothing for a late completion, whether the job waits, runs again or has ended', async () => {
        const stale = await runningJob(hasty, { max_attempts: 3 });
        await expire(stale);
        const lateAnswers = async () => {
          const before = await historyOf(hasty, stale.job_id);
          for (const answer of [
            await complete(hasty, stale, { result: 'zombie' }),
            await fail(hasty, stale),
          ]) {
            expect([answer.status, answer.body.ok, answer.body.ack], answer.text).to.deep.equal([
              409,
              false,
              true,
            ]);
            expect(answer.body.code).to.equal('lease_not_active');
          }
          expect(await historyOf(hasty, stale.job_id)).to.deep.equal(before);
        };
        await lateAnswers();
        const successor = await claimedFrom(hasty, [stale.name]);
        await lateAnswers();
        await complete(hasty, successor, { result: 'successor' });
        await lateAnswers();
        expect((await read(hasty, stale.job_id)).result.result_data).to.equal('successor');
      });

      it('refuses a completion by another worker, and keeps the message', async () => {
        const claim = await runningJob(server);
        const other = await runningJob(server);
        const before = await historyOf(server, claim.job_id);
        const asked: [object, number, string][] = [
          [{ worker_id: 'worker-2' }, 403, 'worker_mismatch'],
          [{ lease_token: nowhere }, 403, 'token_mismatch'],
          [{ lease_token: other.lease_token }, 403, 'token_mismatch'],
          [{ attempt_id: nowhere }, 404, 'lease_not_found'],
          [{ attempt_id: 'no uuid' }, 404, 'lease_not_found'],
          [{ job_id: other.job_id }, 409, 'job_mismatch'],
          [{ lease_token: undefined }, 400, 'invalid_request'],
          [{ attempt_id: undefined }, 400, 'invalid_request'],
          [{ job_id: undefined }, 400, 'invalid_request'],
          [{ stream: 7 }, 400, 'invalid_request'],
          [{ message_id: {} }, 400, 'invalid_request'],
        ];
        for (const [fields, status, code] of asked) {
          const answer = await complete(server, claim, fields);
          const { ok, ack } = answer.body;
          expect([answer.status, ok, ack, answer.body.code], answer.text).to.deep.equal([
            status,
            false,
            false,
            code,
          ]);
        }
        expect(await historyOf(server, claim.job_id)).to.deep.equal(before);
      });

      it("refuses a result that is too large with the contract's own error code", async () => {
        const claim = await runningJob(server);
        // In full, each number has four times the length that was sent.
        const numbers = `[${new Array(100_000).fill('1e20').join(',')}]`;
        const text = JSON.stringify({ ...ownerOf(claim), result: 0 }).replace(
          '"result":0',
          `"result":${numbers}`,
        );
        const { status, body } = await post(server, `${workerPath}/complete`, text);
        expect([status, body.ok, body.field]).to.deep.equal([413, false, 'result']);
      });

      it('ends a completed attempt as CANCELED if a client asked for it, and keeps the result', async () => {
        const claim = await runningJob(server);
        await cancel(server, claim.job_id);
        const { body } = await complete(server, claim, { result: { half: true } });
        expect(body).to.deep.equal({ ok: true, ack: true });
        const { job, result } = await read(server, claim.job_id);
        expect([job.state, result.result_data, job.dead_lettered]).to.deep.equal([
          'CANCELED',
          { half: true },
          false,
        ]);
      });
    });

    describe('failure of an attempt', () => {
      it('requeues the job after a failure that may be retried, with a new attempt', async () => {
        const claim = await runningJob(server);
        const { status, body } = await fail(server, claim);
        expect([status, body]).to.deep.equal([200, { ok: true, ack: true, requeued: true, dlq: false }]);
        const next = await claimedFrom(server, [claim.name]);
        expect([next.job_id, next.attempt]).to.deep.equal([claim.job_id, 2]);
        for (const field of ['attempt_id', 'lease_token']) expect(next[field]).not.to.equal(claim[field]);
        expect(next.stream.message_id).not.to.equal(claim.stream.message_id);
        expect(next.fence).to.be.above(claim.fence);
      });

      it('waits for the backoff after a failed attempt', async () => {
        const claim = await runningJob(server, { retry_backoff_s: 600 });
        await fail(server, claim);
        expect((await claimFrom(server, [claim.name])).body.claimed).to.equal(false);
        const { job } = await read(server, claim.job_id);
        expect(job.state).to.equal('QUEUED');
        expect(Date.parse(job.next_retry_at) - Date.now()).to.be.within(200_000, 900_000);
      });

      it('makes a job a dead letter after its last attempt, and answers a repetition alike', async () => {
        const claim = await runningJob(server, { max_attempts: 2 });
        await fail(server, claim);
        const last = await claimedFrom(server, [claim.name]);
        for (const _ of [1, 2]) {
          const { status, body } = await fail(server, last);
          expect([status, body]).to.deep.equal([200, { ok: true, ack: true, requeued: false, dlq: true }]);
        }
        const again = await fail(server, claim);
        expect([again.status, again.body], 'the first attempt, sent again').to.deep.equal([
          200,
          { ok: true, ack: true, requeued: true, dlq: false },
        ]);
        const { job, result, events } = await historyOf(server, claim.job_id);
        expect([job.state, job.dead_lettered, result.error]).to.deep.equal(['FAILED', true, 'it broke']);
        expect(events.slice(-3)).to.deep.equal(['LEASE_RELEASED', 'JOB_FAILED', 'JOB_DEAD_LETTERED']);
      });

      it('makes a job a dead letter at once after a failure that must not be retried', async () => {
        for (const error of [
          { code: 'E_INPUT', message: 'unreadable', retryable: false },
          { retryable: false },
        ]) {
          const claim = await runningJob(server);
          const { body } = await fail(server, claim, { error });
          expect(body).to.deep.equal({ ok: true, ack: true, requeued: false, dlq: true });
        }
      });

      it('refuses a failure without a valid error', async () => {
        const claim = await runningJob(server);
        const { status, body } = await fail(server, claim, { error: { retryable: 'perhaps' } });
        expect([status, body.ok, body.field]).to.deep.equal([400, false, 'error.retryable']);
      });
    });

    it("starts another attempt after a silent worker's, and ends with a dead letter", async () => {
      const claim = await runningJob(hasty, { max_attempts: 2 });
      await expire(claim);
      await expire(await claimedFrom(hasty, [claim.name]));
      const { job, events } = await historyOf(hasty, claim.job_id);
      expect([job.state, job.dead_lettered, job.attempts]).to.deep.equal(['TIMEOUT', true, 2]);
      expect(events).to.deep.equal([
        'JOB_SUBMITTED',
        'LEASE_GRANTED',
        'LEASE_EXPIRED',
        'JOB_REQUEUED',
        'LEASE_GRANTED',
        'LEASE_EXPIRED',
        'JOB_TIMEOUT',
        'JOB_DEAD_LETTERED',
      ]);
    });

    it('stores a row per attempt with worker, times, outcome and error, and no token', async () => {
      const claim = await runningJob(server, { max_attempts: 2 });
      await fail(server, claim);
      const last = await claimedFrom(server, [claim.name], { worker_id: 'worker-2' });
      await complete(server, last, { worker_id: 'worker-2' });
      const { text, body } = await get(server, `/api/scheduler/jobs/${claim.job_id}/attempts`);
      expect(body.attempts.map(({ attempt_id }: Body) => attempt_id)).to.deep.equal([
        last.attempt_id,
        claim.attempt_id,
      ]);
      const [second, first] = body.attempts;
      expect([second.worker_id, second.release_status, second.error, second.requeued]).to.deep.equal([
        'worker-2',
        'SUCCEEDED',
        null,
        false,
      ]);
      expect([first.attempt, first.state, first.release_status, first.requeued]).to.deep.equal([
        1,
        'RELEASED',
        'FAILED',
        true,
      ]);
      expect([first.error, first.error_detail]).to.deep.equal([
        'it broke',
        { code: 'E_BROKEN', message: 'it broke', stack: 'at line 1', retryable: true },
      ]);
      for (const time of [first.granted_at, first.ended_at]) expectTime(time);
      expect(text).not.to.include(claim.lease_token);
      expect((await get(server, `/api/scheduler/jobs/${nowhere}/attempts`)).status).to.equal(404);
    });

    it('accepts attempts of jobs that were claimed over gRPC or the other contracts', async () => {
      const stream = newStream();
      const { job_id } = await enqueue(server, stream);
      const claim = await claimedFrom(server, [stream]);
      const release = await post(server, `/api/scheduler/lease/${claim.attempt_id}/heartbeat`, {
        worker_id: 'worker-1',
      });
      expect([release.status, release.body.job.job_id]).to.deep.equal([200, job_id]);
      const done = await post(server, `${workerPath}/complete`, { ...ownerOf(claim), stream: undefined });
      expect(done.status).to.equal(200);
    });
  });
});

import { WorkerClaim, WorkerComplete, WorkerFail, WorkerHeartbeat } from '../../domain/requests/worker.ts';
import { lease, token } from '../openapi/examples.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { Claimed, Completed, Failed, Kept, refusals } from './schemas.ts';

const owner = { worker_id: 'w1', job_id: lease.job_id, lease_token: token };
const message = { stream: 'mails', message_id: '1766952970000-0' };
const attempt = { ...owner, attempt_id: lease.lease_id, ...message };
const lost = ['worker_mismatch', 'token_mismatch', 'job_mismatch', 'lease_not_active'] as const;

/** Documentation of the worker contract. */
export const workerAbout = operations('Worker', {
  workerClaim: {
    summary: 'Claim the next job of some streams',
    details: 'Jobs of the first stream go before those of the second. With `max_wait_ms` it waits for one.',
    body: requestBody(WorkerClaim, { worker_id: 'w1', streams: ['mails'], max_wait_ms: 5000 }),
    answers: {
      200: answer(
        'The job, or why there is none.',
        Claimed,
        {
          claimed: true,
          job_id: lease.job_id,
          attempt_id: lease.lease_id,
          lease_token: token,
          stream: { name: message.stream, message_id: message.message_id },
          payload: { to: 'ann@example.org' },
          lease_ttl_seconds: 60,
          heartbeat_interval_seconds: 20,
          heartbeat_within_ms: 60_000,
          lease_expires_at: '2025-12-28T20:17:10.000Z',
          job_type: 'send',
          attempt: 1,
          max_attempts: 3,
          fence: 4711,
        },
        { claimed: false, reason: 'No jobs available', retry_after_ms: 2000 },
      ),
    },
    errors: [],
    refusal: refusals.claim,
  },
  workerHeartbeat: {
    summary: 'Extend an attempt',
    body: requestBody(WorkerHeartbeat, owner),
    answers: {
      200: answer('It is kept.', Kept, {
        ok: true,
        lease_expires_at: '2025-12-28T20:17:40.000Z',
        ttl_remaining_ms: 60_000,
        cancel_requested: false,
        drain: false,
      }),
    },
    errors: ['job_not_found', 'lease_not_found', ...lost],
    refusal: refusals.heartbeat,
  },
  workerComplete: {
    summary: 'End an attempt: the job is done',
    details: 'Safe to repeat: the same words for the same attempt are answered as they were the first time.',
    body: requestBody(WorkerComplete, { ...attempt, result: { sent: true } }),
    answers: { 200: answer('It is written.', Completed, { ok: true, ack: true }) },
    errors: ['lease_not_found', 'message_mismatch', ...lost],
    refusal: refusals.complete,
  },
  workerFail: {
    summary: 'End an attempt: it has failed',
    details:
      'The job goes back into its stream while `max_attempts` allows, unless `error.retryable` is false.',
    body: requestBody(WorkerFail, {
      ...attempt,
      error: { code: 'E_ADDRESS', message: 'no such mailbox', stack: null, retryable: false },
    }),
    answers: {
      200: answer('It is written.', Failed, { ok: true, ack: true, requeued: false, dlq: true }),
    },
    errors: ['lease_not_found', 'message_mismatch', ...lost],
    refusal: refusals.fail,
  },
});

import Type from 'typebox';
import { AcquireLease, Heartbeat } from '../../domain/requests/scheduler.ts';
import { CompleteLease, FailLease, SystemJob } from '../../domain/requests/system.ts';
import { JobOutcome } from '../jobs/schemas.ts';
import * as example from '../openapi/examples.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { always, flag, orNull } from '../openapi/schema-types.ts';
import { Extended, type SystemJobBody, SystemJobRecord, systemFields, WorkAnswer } from './schemas.ts';

const lost = [
  'lease_not_found',
  'worker_mismatch',
  'token_mismatch',
  'job_mismatch',
  'lease_not_active',
] as const;
const done = { ok: always(true, 'It is written.'), job: SystemJobRecord };
const { systemLease } = example;

const ownExamples = {
  type: 'generic',
  priority: 'normal',
  requested_units: 4,
  state: 'leased',
  payload: {},
  idempotency_key: null,
  lease_id: example.lease.lease_id,
  created_at: '2026-02-06T20:09:30.000Z',
  updated_at: '2026-02-06T20:10:00.000Z',
  addon_id: 'default',
  constraints: {},
  attempts: 1,
} satisfies Partial<SystemJobBody>;

const systemJob = Object.fromEntries(
  systemFields.map(({ shownAs, example: usual }) => [
    shownAs,
    (ownExamples as Record<string, unknown>)[shownAs] ?? (shownAs in ownExamples ? null : usual),
  ]),
) as SystemJobBody;

/** Documentation of the request and the heartbeat contract. */
export const systemAbout = operations('Request', {
  submitSystemJob: {
    summary: 'Submit a job',
    body: requestBody(SystemJob, { type: 'generic', requested_units: 4, priority: 'normal', payload: {} }),
    answers: {
      201: answer('The job.', Type.Object({ job: SystemJobRecord }), {
        job: { ...systemJob, state: 'queued', lease_id: null, attempts: 0 },
      }),
    },
    errors: ['duplicate_request', 'quota_exceeded'],
  },
  getSystemJob: {
    summary: 'Read a job and its result',
    answers: {
      200: answer(
        'The job, and what came of it.',
        Type.Object({ job: SystemJobRecord, result: orNull(JobOutcome) }),
        { job: systemJob, result: null },
      ),
    },
    errors: ['job_not_found'],
  },
  acquireLease: {
    summary: 'Acquire the next job and its lease',
    details:
      'With `wait_ms` it waits for a job and for capacity. Safe to repeat with the same `request_id`, for as long as the lease lives.',
    body: requestBody(AcquireLease, { worker_id: 'worker-123', max_units: 8 }),
    answers: {
      200: answer(
        'Granted, or denied and why.',
        WorkAnswer,
        { denied: false, lease: systemLease, job: systemJob, heartbeat_within_ms: 60_000 },
        { denied: true, reason: 'No capacity (busy=8, usable=10, leased=10)', retry_after_ms: 1500 },
      ),
    },
    errors: [],
  },
  keepLease: {
    tag: 'Heartbeat',
    summary: 'Extend a lease',
    body: requestBody(Heartbeat, { worker_id: 'worker-123' }),
    answers: {
      200: answer('It is kept.', Extended, {
        ok: true,
        expires_at: '2026-02-06T20:15:30.123Z',
        ttl_remaining_ms: 60_000,
        cancel_requested: false,
        drain: false,
      }),
    },
    errors: lost,
  },
  completeLease: {
    summary: 'End a lease: the job is done',
    body: requestBody(CompleteLease, { worker_id: 'worker-123', result: { path: '/runtime/out.jpg' } }),
    answers: {
      200: answer('It is written.', Type.Object(done), {
        ok: true,
        job: { ...systemJob, state: 'completed' },
      }),
    },
    errors: [...lost, 'job_not_found'],
  },
  failLease: {
    summary: 'End a lease: the job has failed',
    details: 'With `error.retryable` it goes back into the queue while `max_attempts` allows.',
    body: requestBody(FailLease, {
      worker_id: 'worker-123',
      error: { code: 'E_BROKEN', message: 'it broke', retryable: true },
    }),
    answers: {
      200: answer(
        'It is written.',
        Type.Object({ ...done, requeued: flag('The job went back into the queue.') }),
        { ok: true, job: { ...systemJob, state: 'failed' }, requeued: false },
      ),
    },
    errors: [...lost, 'job_not_found'],
  },
});

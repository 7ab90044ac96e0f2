/**
 * Jobs and leases with the field names of the request and heartbeat contracts, and Leasehold's additional
 * fields.
 */
import Type, { type Static } from 'typebox';
import { type Job, type Priority, priorities } from '../../domain/jobs/job.ts';
import type { State } from '../../domain/jobs/state-machine.ts';
import type { Lease, LeaseOutcome } from '../../domain/leases/lease.ts';
import { iso } from '../../domain/time.ts';
import { JobIntent } from '../jobs/schemas.ts';
import { heartbeatWithinMs, LeaseRecord, leaseToken } from '../leases/schemas.ts';
import { always, count, entity, flag, oneOf, time, word } from '../openapi/schema-types.ts';

/** The states that the contract names. */
const words = ['queued', 'leased', 'running', 'completed', 'failed', 'canceled', 'expired'] as const;

/** Claims belong to the queue contract; in this contract a claimed job has no lease yet. */
const stateWords: Record<State, (typeof words)[number]> = {
  QUEUED: 'queued',
  CLAIMED: 'queued',
  PREPARING: 'queued',
  LEASE_PENDING: 'queued',
  LEASED: 'leased',
  RUNNING: 'running',
  DONE: 'completed',
  FAILED: 'failed',
  CANCELED: 'canceled',
  TIMEOUT: 'expired',
};

const intent = JobIntent.properties;

export const SystemJobRecord = entity('SystemJob', "A job, in the request contract's words.", {
  job_id: intent.job_id,
  type: intent.job_type,
  priority: oneOf(
    priorities.map((word) => word.toLowerCase() as Lowercase<Priority>),
    'Which jobs go first.',
  ),
  requested_units: intent.cost_units,
  unique: intent.unique,
  state: oneOf(words, 'Where it is on its way.'),
  payload: intent.payload,
  idempotency_key: intent.client_request_id,
  tags: intent.tags,
  max_runtime_s: intent.max_runtime_s,
  lease_id: intent.lease_id,
  created_at: intent.created_at,
  updated_at: intent.updated_at,
  addon_id: intent.addon_id,
  constraints: intent.constraints,
  stream: intent.stream,
  attempts: intent.attempts,
  max_attempts: intent.max_attempts,
  retry_backoff_s: intent.retry_backoff_s,
  run_at: intent.run_at,
  next_retry_at: intent.next_retry_at,
  cancel_requested: intent.cancel_requested,
  progress: intent.progress,
  note: intent.note,
});

export const systemJob = (job: Job): Static<typeof SystemJobRecord> => ({
  job_id: job.jobId,
  type: job.jobType,
  priority: job.priority.toLowerCase() as Lowercase<Priority>,
  requested_units: job.costUnits,
  unique: job.unique,
  state: stateWords[job.state],
  payload: job.payload,
  idempotency_key: job.clientRequestId,
  tags: job.tags,
  max_runtime_s: job.maxRuntimeS,
  lease_id: job.leaseId,
  created_at: iso(job.createdAtMs),
  updated_at: iso(job.updatedAtMs),
  addon_id: job.addonId,
  constraints: job.constraints,
  stream: job.stream,
  attempts: job.attempts,
  max_attempts: job.maxAttempts,
  retry_backoff_s: job.retryBackoffS,
  run_at: iso(job.runAtMs),
  next_retry_at: iso(job.nextRetryAtMs),
  cancel_requested: job.cancelRequested,
  progress: job.progress,
  note: job.note,
});

const record = LeaseRecord.properties;
const SystemLease = entity('SystemLease', "A lease, in the request contract's words.", {
  lease_id: record.lease_id,
  job_id: record.job_id,
  worker_id: record.worker_id,
  capacity_units: record.cost_units,
  issued_at: record.granted_at,
  expires_at: record.expires_at,
  last_heartbeat: record.last_heartbeat_at,
  fence: record.fence,
  attempt: record.attempt,
  lease_token: leaseToken,
});

const systemLease = (lease: Lease, token: string): Static<typeof SystemLease> => ({
  lease_id: lease.leaseId,
  job_id: lease.jobId,
  worker_id: lease.workerId,
  capacity_units: lease.costUnits,
  issued_at: iso(lease.grantedAtMs),
  expires_at: iso(lease.expiresAtMs),
  last_heartbeat: iso(lease.lastHeartbeatAtMs),
  fence: Number(lease.fence),
  attempt: lease.attempt,
  lease_token: token,
});

export const WorkAnswer = Type.Union([
  entity('WorkGranted', 'The next job, with its lease.', {
    denied: always(false, 'It is granted.'),
    lease: SystemLease,
    job: SystemJobRecord,
    heartbeat_within_ms: heartbeatWithinMs,
  }),
  entity('WorkDenied', 'There is no job, or no room for it.', {
    denied: always(true, 'It is denied.'),
    reason: word('Why.'),
    retry_after_ms: count('When it is worth asking again.'),
  }),
]);

export function workAnswer(outcome: LeaseOutcome): Static<typeof WorkAnswer> {
  if (outcome.kind === 'denied') {
    return { denied: true, reason: outcome.reason, retry_after_ms: Math.ceil(outcome.retryAfterMs) };
  }
  const { lease, token, job } = outcome;
  return {
    denied: false,
    lease: systemLease(lease, token),
    job: systemJob(job),
    heartbeat_within_ms: outcome.heartbeatWithinMs,
  };
}

export const Extended = entity('LeaseExtended', 'The lease is kept.', {
  ok: always(true, 'It is kept.'),
  expires_at: time('When it runs out unless its worker is heard of before.'),
  ttl_remaining_ms: count('How long that is from now.'),
  cancel_requested: flag('Somebody wants the job canceled: stop, and end the lease.'),
  drain: flag('The server is shutting down: ask another one for more work.'),
});

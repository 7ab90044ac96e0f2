/** Claims and attempts with the worker contract's field names. */
import Type, { type Static } from 'typebox';
import { heartbeatIntervalS } from '../../domain/jobs/backoff.ts';
import type { LeaseOutcome } from '../../domain/leases/lease.ts';
import { iso } from '../../domain/time.ts';
import { JobIntent } from '../jobs/schemas.ts';
import { heartbeatWithinMs, LeaseRecord, leaseToken } from '../leases/schemas.ts';
import { always, count, entity, flag, orNull, time, uuid, whole, word } from '../openapi/schema-types.ts';
import { Extended } from '../system/schemas.ts';

const attempt = { ack: flag("The attempt's message is no longer needed.") };

export const Claimed = Type.Union([
  entity('StreamJobClaimed', 'A job, and the attempt at it that begins.', {
    claimed: always(true, 'There is a job.'),
    job_id: uuid('The job.'),
    attempt_id: uuid('The attempt, which is the lease.'),
    lease_token: leaseToken,
    stream: Type.Object(
      {
        name: orNull(word('The stream.')),
        message_id: orNull(word('The name of the message in it.')),
      },
      { description: 'Where the job came from.' },
    ),
    payload: JobIntent.properties.payload,
    lease_ttl_seconds: whole('How long the lease lasts without a heartbeat.'),
    heartbeat_interval_seconds: Type.Integer({
      minimum: 1,
      description:
        'How often to send a heartbeat: a third of the TTL in whole seconds, at least 1. With a TTL of 1 s that is too late; send one every third of `heartbeat_within_ms` then.',
    }),
    heartbeat_within_ms: heartbeatWithinMs,
    lease_expires_at: time('When the lease expires without another heartbeat.'),
    job_type: JobIntent.properties.job_type,
    attempt: LeaseRecord.properties.attempt,
    max_attempts: JobIntent.properties.max_attempts,
    fence: LeaseRecord.properties.fence,
  }),
  entity('NothingClaimed', 'There is no job for this worker, or no room for it.', {
    claimed: always(false, 'There is none.'),
    reason: word('Why.'),
    retry_after_ms: count('When it is worth asking again.'),
  }),
]);

export function claimed(outcome: LeaseOutcome): Static<typeof Claimed> {
  if (outcome.kind === 'denied') {
    return { claimed: false, reason: outcome.reason, retry_after_ms: Math.ceil(outcome.retryAfterMs) };
  }
  const { lease, token, job, messageId } = outcome;
  return {
    claimed: true,
    job_id: job.jobId,
    attempt_id: lease.leaseId,
    lease_token: token,
    stream: { name: job.stream, message_id: messageId },
    payload: job.payload,
    lease_ttl_seconds: lease.ttlS,
    heartbeat_interval_seconds: heartbeatIntervalS(lease.ttlS),
    heartbeat_within_ms: outcome.heartbeatWithinMs,
    lease_expires_at: iso(lease.expiresAtMs),
    job_type: job.jobType,
    attempt: lease.attempt,
    max_attempts: job.maxAttempts,
    fence: Number(lease.fence),
  };
}

const { ok, expires_at, ...rest } = Extended.properties;
export const Kept = entity('AttemptKept', 'The attempt is kept.', {
  ok,
  lease_expires_at: expires_at,
  ...rest,
});
export const Completed = entity('AttemptCompleted', 'The attempt has ended, and its result is stored.', {
  ok: always(true, 'It is written.'),
  ...attempt,
});
export const Failed = entity('AttemptFailed', 'The attempt has ended.', {
  ok: always(true, 'It is written.'),
  ...attempt,
  requeued: flag('Its job went back into the queue.'),
  dlq: flag('Its job is a dead letter.'),
});

const refused = always(false, 'It is not done.');
/** The fields that the contract adds to an error. */
export const refusals = {
  claim: Type.Object({ claimed: always(false, 'There is none.') }),
  heartbeat: Type.Object({
    ok: refused,
    lease_expires_at: Type.Null({ description: 'Nothing has been extended.' }),
  }),
  complete: Type.Object({ ok: refused, ...attempt }),
  fail: Type.Object({
    ok: refused,
    ...attempt,
    requeued: always(false, 'Nothing was requeued by this.'),
    dlq: always(false, 'Nothing was given up by this.'),
  }),
};

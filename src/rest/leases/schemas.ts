/** Leases with the queue contract's field names, and Leasehold's additional fields. */
import Type, { type Static } from 'typebox';
import { finalStatuses } from '../../domain/jobs/job.ts';
import { type Lease, type LeaseOutcome, leaseStates } from '../../domain/leases/lease.ts';
import { iso } from '../../domain/time.ts';
import { JobIntent, jobIntent } from '../jobs/schemas.ts';
import {
  always,
  count,
  entity,
  flag,
  jsonObject,
  oneOf,
  orNull,
  time,
  uuid,
  whole,
  word,
} from '../openapi/schema-types.ts';

export const LeaseRecord = entity('Lease', 'A lease.', {
  lease_id: uuid('Its id.'),
  job_id: uuid('The job that it is for.'),
  addon_id: word('The application or tenant that submitted the job.'),
  cost_units: whole('The units of capacity that it takes.'),
  ttl_sec: whole('How long it lasts without a heartbeat.'),
  state: oneOf(leaseStates, 'Whether it holds.'),
  granted_at: time('When it was granted.'),
  last_heartbeat_at: time('The last heartbeat of its worker, or the grant.'),
  expires_at: time('When it expires without another heartbeat.'),
  worker_id: word('Who holds it.'),
  fence: count('A number that only rises, for systems that refuse a worker who comes too late.'),
  attempt: whole('Which attempt at the job it is, from 1.'),
  ended_at: orNull(time('When it was over.')),
  release_status: orNull(oneOf(finalStatuses, 'How its worker said the job went.')),
  error: orNull(word('What went wrong, in words.')),
  error_detail: orNull(jsonObject('What went wrong, as an object where one came.')),
  requeued: flag('Its job went back into the queue when it ended.'),
  dead_lettered: flag('Its job was given up by its stream when it ended.'),
});

export const leaseRecord = (lease: Lease): Static<typeof LeaseRecord> => ({
  lease_id: lease.leaseId,
  job_id: lease.jobId,
  addon_id: lease.addonId,
  cost_units: lease.costUnits,
  ttl_sec: lease.ttlS,
  state: lease.state,
  granted_at: iso(lease.grantedAtMs),
  last_heartbeat_at: iso(lease.lastHeartbeatAtMs),
  expires_at: iso(lease.expiresAtMs),
  worker_id: lease.workerId,
  fence: Number(lease.fence),
  attempt: lease.attempt,
  ended_at: iso(lease.endedAtMs),
  release_status: lease.releaseStatus,
  error: lease.error,
  error_detail: lease.errorDetail,
  requeued: lease.requeued,
  dead_lettered: lease.deadLettered,
});

export const heartbeatWithinMs = count(
  'The first heartbeat, or the release, must arrive within so many milliseconds of the grant, or the lease expires.',
);

export const leaseToken = word('The secret of its worker. It is shown here and nowhere else.');

export const Approval = Type.Union([
  entity('LeaseApproved', 'The lease is granted.', {
    approved: always(true, 'It is granted.'),
    lease: entity('GrantedLease', 'A lease, as only its worker sees it.', {
      ...LeaseRecord.properties,
      lease_token: leaseToken,
    }),
    job: JobIntent,
    heartbeat_within_ms: heartbeatWithinMs,
  }),
  entity('LeaseDenied', 'There is no room for the job now. It waits, and keeps its claim.', {
    approved: always(false, 'It is denied.'),
    retry_after_sec: Type.Integer({ minimum: 1, description: 'When it is worth asking again.' }),
    reason: word('Why.'),
  }),
]);

export function approval(outcome: LeaseOutcome): Static<typeof Approval> {
  if (outcome.kind === 'denied') {
    const seconds = Math.max(1, Math.ceil(outcome.retryAfterMs / 1000));
    return { approved: false, retry_after_sec: seconds, reason: outcome.reason };
  }
  const { lease, token, job } = outcome;
  return {
    approved: true,
    lease: { ...leaseRecord(lease), lease_token: token },
    job: jobIntent(job),
    heartbeat_within_ms: outcome.heartbeatWithinMs,
  };
}

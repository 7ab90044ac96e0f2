/** Jobs and leases in the queue contract's words, and the fields that Leasehold has beside them. */
import Type, { type Static } from 'typebox';
import { contractWord } from '../domain/claims.ts';
import { contractStates } from '../domain/commands.ts';
import {
  finalStatuses,
  type Job,
  type JobEvent,
  type JobResult,
  type JsonObject,
  priorities,
} from '../domain/job.ts';
import { type Lease, type LeaseOutcome, leaseStates } from '../domain/lease.ts';
import { eventTypes } from '../domain/machine.ts';
import { iso } from '../domain/times.ts';
import {
  always,
  anyJson,
  count,
  entity,
  flag,
  jsonObject,
  list,
  oneOf,
  orNull,
  share,
  time,
  uuid,
  whole,
  word,
} from './word-types.ts';

export const JobIntent = entity('JobIntent', 'A job.', {
  job_id: uuid('Its id.'),
  addon_id: word('The application or tenant that submitted it.'),
  job_type: word('The kind of work.'),
  priority: oneOf(priorities, 'Which jobs go first.'),
  cost_units: whole('Units of capacity that its lease uses.'),
  constraints: jsonObject('What its worker must have: `x_required`, `x_heavy`.'),
  payload: jsonObject('The JSON object that is passed to the worker.'),
  state: oneOf(contractStates, 'Where it is on its way.'),
  created_at: time('When it was submitted.'),
  updated_at: time('When it was last changed.'),
  claimed_by: orNull(word('The worker that has claimed or leased it.')),
  claim_expires_at: orNull(time('When its claim runs out.')),
  lease_id: orNull(uuid('Its lease; once it has ended, its last one; null while it waits for one.')),
  attempts: count('How many leases it has had.'),
  next_retry_at: orNull(time('When it may be tried again.')),
  client_request_id: orNull(word("The submitter's own key.")),
  stream: orNull(word('The stream that delivers it.')),
  unique: flag('It is not given to a worker that already holds a lease.'),
  tags: list(Type.String(), 'Labels that are kept with it.'),
  max_runtime_s: orNull(whole('Seconds after which a lease of it ends, whatever its heartbeats say.')),
  max_attempts: whole('Attempts before an expiry or a retryable failure is final.'),
  retry_backoff_s: whole('Seconds before the second attempt; doubled for each one after it.'),
  run_at: orNull(time('Not to be started before this time.')),
  cancel_requested: flag('A client asked to cancel it; its worker learns of it with its next heartbeat.'),
  progress: orNull(share('How far its worker says it is.')),
  note: orNull(word('What its worker said last.')),
  dead_lettered: flag('Its stream has given it up: it failed for good, or too often.'),
});

export const jobIntent = (job: Job): Static<typeof JobIntent> => ({
  job_id: job.jobId,
  addon_id: job.addonId,
  job_type: job.jobType,
  priority: job.priority,
  cost_units: job.costUnits,
  constraints: job.constraints,
  payload: job.payload,
  state: contractWord(job.state) as (typeof contractStates)[number],
  created_at: iso(job.createdAtMs),
  updated_at: iso(job.updatedAtMs),
  claimed_by: job.claimedBy,
  claim_expires_at: iso(job.claimExpiresAtMs),
  lease_id: job.leaseId,
  attempts: job.attempts,
  next_retry_at: iso(job.nextRetryAtMs),
  client_request_id: job.clientRequestId,
  stream: job.stream,
  unique: job.unique,
  tags: job.tags,
  max_runtime_s: job.maxRuntimeS,
  max_attempts: job.maxAttempts,
  retry_backoff_s: job.retryBackoffS,
  run_at: iso(job.runAtMs),
  cancel_requested: job.cancelRequested,
  progress: job.progress,
  note: job.note,
  dead_lettered: job.deadLettered,
});

export const JobOutcome = entity('JobResult', 'What came of a job.', {
  job_id: uuid('The job.'),
  status: oneOf(finalStatuses, 'How it went.'),
  result_data: anyJson('What its worker handed in.'),
  error: orNull(word('What went wrong, in words.')),
  error_detail: orNull(jsonObject('What went wrong, as an object where one came.')),
  started_at: orNull(time('When its last lease was granted.')),
  finished_at: time('When it was over.'),
  attempts: count('How many leases it took.'),
  metrics: orNull(jsonObject('Figures that came with the result.')),
});

export const jobResult = (result: JobResult): Static<typeof JobOutcome> => ({
  job_id: result.jobId,
  status: result.status,
  result_data: result.resultData,
  error: result.error,
  error_detail: result.errorDetail,
  started_at: iso(result.startedAtMs),
  finished_at: iso(result.finishedAtMs),
  attempts: result.attempts,
  metrics: result.metrics,
});

export const JobHappening = entity('JobEvent', 'One thing that happened to a job.', {
  event_id: word('Rises with time within a job; decimal digits.'),
  ts: time('When it happened.'),
  type: oneOf(eventTypes, 'What happened.'),
  lease_id: orNull(uuid('The lease that it has to do with.')),
  data: jsonObject('Who did it, why, and what belongs to it.'),
});

export const jobEvent = (event: JobEvent): Static<typeof JobHappening> => ({
  event_id: event.eventId,
  ts: iso(event.tsMs),
  type: event.type,
  lease_id: event.leaseId,
  data: inContractWords(event.data),
});

/** The contracts know no LEASED. */
function inContractWords(data: JsonObject): JsonObject {
  const { from, to } = data;
  if (from !== 'LEASED' && to !== 'LEASED') return data;
  return {
    ...data,
    from: from === 'LEASED' ? 'RUNNING' : from,
    to: to === 'LEASED' ? 'RUNNING' : to,
  } as JsonObject;
}

export const LeaseRecord = entity('Lease', 'A lease.', {
  lease_id: uuid('Its id.'),
  job_id: uuid('The job that it is for.'),
  addon_id: word('The application or tenant that submitted the job.'),
  cost_units: whole('The units of capacity that it takes.'),
  ttl_sec: whole('How long it lasts without a heartbeat.'),
  state: oneOf(leaseStates, 'Whether it holds.'),
  granted_at: time('When it was granted.'),
  last_heartbeat_at: time('When its worker was last heard of.'),
  expires_at: time('When it runs out unless its worker is heard of before.'),
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

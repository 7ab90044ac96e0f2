/** Jobs with the queue contract's field names, and Leasehold's additional fields. */
import Type, { type Static } from 'typebox';
import { contractState } from '../../domain/jobs/claim-policy.ts';
import {
  finalStatuses,
  type Job,
  type JobEvent,
  type JobResult,
  type JsonObject,
  priorities,
} from '../../domain/jobs/job.ts';
import { eventTypes } from '../../domain/jobs/state-machine.ts';
import { contractStates } from '../../domain/requests/scheduler.ts';
import { iso } from '../../domain/time.ts';
import {
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
} from '../openapi/schema-types.ts';

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
  state: contractState(job.state) as (typeof contractStates)[number],
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

/** The contracts have no LEASED; they show RUNNING. */
function inContractWords(data: JsonObject): JsonObject {
  const { from, to } = data;
  if (from !== 'LEASED' && to !== 'LEASED') return data;
  return {
    ...data,
    from: from === 'LEASED' ? 'RUNNING' : from,
    to: to === 'LEASED' ? 'RUNNING' : to,
  } as JsonObject;
}

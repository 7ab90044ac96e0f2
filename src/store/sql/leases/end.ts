import type { Holder } from '../../../domain/access/holder.ts';
import type { FinalStatus, Json, JsonObject } from '../../../domain/jobs/job.ts';
import { eventNumber, type State, stateNumber, transition } from '../../../domain/jobs/state-machine.ts';
import type { LeaseState } from '../../../domain/leases/lease.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import {
  booleanArray,
  jsonsOrNull,
  nullIfAllNull,
  numberArray,
  textArray,
  uuidArray,
} from '../array-params.ts';
import { type LaneTally, tallyAll, tallyRows } from '../stats/tallies.ts';
import {
  endedLeaseColumns,
  type LeaseRecord,
  leaseStateNumber,
  outcomeLeaseColumns,
  statusNumber,
} from './record.ts';

/** How the lease in a locked row ends. */
export interface LeaseEnding {
  jobId: string;
  state: Exclude<LeaseState, 'ACTIVE'>;
  status: FinalStatus | null;
  error: string | null;
  errorDetail: JsonObject | null;
  /** All ids that the attempt's message had; null if they are not known. */
  messageIds: readonly string[] | null;
}

/** How its job ends with it. */
export interface JobEnding extends LeaseEnding {
  to: State;
  result: Json;
  metrics: JsonObject | null;
  /** The stream that dead-letters it. */
  deadStream: string | null;
  /** One event row records everything: the release of its lease and its completion. */
  isPlain: boolean;
}

/** Effects of ending leases of any kind. */
export interface EndEffects {
  /** Units that become free. */
  units: number;
  tallies: Iterable<LaneTally>;
}

/** A lease that has just ended, with its token and holder. */
export type EndedLease = LeaseRecord & { lease_token: string; holder: Holder };

/**
 * Locks the capacity if units become free. All other rows are locked already, so the order of the parts does
 * not matter.
 */
const effects = (units: string, tallies: string, at: string) => `freed as (
  update capacity set used = used - ${units}::bigint where capacity_id = 1 and ${units}::bigint <> 0
), tallied as (${tallyAll(tallies, at)}
)`;

const timeOf = (ms: string): string => `to_timestamp(${ms}::float8 / 1000)`;

const completed = transition('complete');

/** Columns of an outcome that its live row lacks, as expressions on the deleted rows. */
interface OutcomeParts {
  state: string;
  leaseState: string;
  status: string;
  finishedAt: string;
  error: string;
  errorDetail: string;
  deadStream: string;
  messageIds: string;
}

/**
 * The part of a statement that writes the outcomes of jobs that end with their leases, from a part with their
 * live rows.
 */
export const insertOutcomes = (rows: string, of: OutcomeParts): string => `
  insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, progress, note,
    started_at, finished_at, error_text, error_detail, result, metrics, dead_stream, fence, lease_token,
    ttl_s, lease_state, last_heartbeat_at, expires_at, release_status, heartbeats, longest_silence_ms,
    longest_silence_since, message_ids, holder)
  select job_id, ${of.state}, attempts, claimed_by, lease_id, cancel_requested, progress, note, started_at,
    ${of.finishedAt}, ${of.error}, ${of.errorDetail}, nullif(result, 'null'), nullif(metrics, 'null'),
    ${of.deadStream}, fence, lease_token, lease_ttl_s, ${of.leaseState}, last_heartbeat_at, expires_at,
    ${of.status}, heartbeats, longest_silence_ms, longest_silence_since, ${of.messageIds},
    holder
  from ${rows}`;

// One row holds everything about a job and its last lease, and a second row records the event. Values that
// few jobs have come as JSON arrays, which are null if no job of the batch has any.
const finishing = (returning: string, answer: string) =>
  preparedStatement(
    [
      'jobIds',
      'leaseStates',
      'statuses',
      'finalStates',
      'plains',
      'errors',
      'deadStreams',
      'messageIds',
      'errorDetails',
      'results',
      'metrics',
      'nowMs',
      'units',
      'tallies',
    ],
    `
with ending as (
  select * from rows from (
    unnest(@jobIds::uuid[], @leaseStates::smallint[], @statuses::smallint[], @finalStates::smallint[],
      @plains::boolean[], @errors::text[], @deadStreams::text[], @messageIds::text[]),
    jsonb_array_elements(@errorDetails::jsonb), jsonb_array_elements(@results::jsonb),
      jsonb_array_elements(@metrics::jsonb)
  ) as ending (job_id, lease_state, status, final_state, is_plain, error, dead_stream, message_ids,
    error_detail, result, metrics)
), deleted as (
  delete from live_jobs live using ending where ${keyEquals('live.job_id', 'ending.job_id')}
  returning live.job_id, live.attempts, live.claimed_by, live.lease_id, live.cancel_requested, live.progress,
    live.note, live.started_at, live.state, live.fence, live.lease_token, live.lease_ttl_s,
    live.last_heartbeat_at, live.expires_at, live.heartbeats, live.longest_silence_ms,
    live.longest_silence_since, live.holder, ending.lease_state, ending.status, ending.final_state,
    ending.is_plain, ending.error, ending.dead_stream, ending.message_ids, ending.error_detail,
    ending.result, ending.metrics
), outcome as (${insertOutcomes('deleted', {
      state: 'final_state',
      leaseState: 'lease_state',
      status: 'status',
      finishedAt: timeOf('@nowMs'),
      error: 'error',
      errorDetail: "nullif(error_detail, 'null')",
      deadStream: 'dead_stream',
      messageIds: 'message_ids::text[]',
    })}
  ${returning}
), recorded as (
  insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, release_status)
  select clock_timestamp(), job_id, lease_id, ${eventNumber(completed.event)}, state, final_state, claimed_by,
    status
  from deleted where is_plain
), ${effects('@units', '@tallies', timeOf('@nowMs'))}
${answer}`,
  );

const finishReturning = finishing(
  'returning *',
  `select ${outcomeLeaseColumns('outcome')}, outcome.lease_token, outcome.holder
  from outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job`,
);
/** If no caller wants the leases, they need not be read and returned. */
const finishSilently = finishing('', 'select 1 where false');

/**
 * Ends locked jobs with their leases: deletes their live rows and writes their outcomes. Returns the leases
 * if they are `wanted`, and nothing otherwise.
 */
export async function finishJobs(
  sql: Sql,
  endings: readonly JobEnding[],
  { units, tallies }: EndEffects,
  { nowMs, wanted }: { nowMs: number; wanted: boolean },
): Promise<EndedLease[]> {
  return (wanted ? finishReturning : finishSilently).query<EndedLease>(sql, {
    jobIds: uuidArray(endings.map(({ jobId }) => jobId)),
    leaseStates: numberArray(endings.map(({ state }) => leaseStateNumber(state))),
    statuses: numberArray(endings.map(({ status }) => (status === null ? null : statusNumber(status)))),
    finalStates: numberArray(endings.map(({ to }) => stateNumber(to))),
    plains: booleanArray(endings.map(({ isPlain }) => isPlain)),
    errors: textArray(endings.map(({ error }) => error)),
    deadStreams: textArray(endings.map(({ deadStream }) => deadStream)),
    messageIds: nullIfAllNull(
      endings.map(({ messageIds }) => messageIds && textArray(messageIds)),
      textArray,
    ),
    errorDetails: jsonsOrNull(endings.map(({ errorDetail }) => errorDetail)),
    results: jsonsOrNull(endings.map(({ result }) => result)),
    metrics: jsonsOrNull(endings.map(({ metrics }) => metrics)),
    nowMs,
    units,
    tallies: tallyRows(tallies),
  });
}

const close = preparedStatement(
  ['endings', 'nowMs', 'units', 'tallies'],
  `
with lease as (
  insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state,
    granted_at, last_heartbeat_at, expires_at, ended_at, release_status, requeued, error_text, error_detail,
    heartbeats, longest_silence_ms, longest_silence_since, message_ids, holder)
  select live.lease_id, live.job_id, live.attempts, live.claimed_by, live.cost_units, live.lease_ttl_s,
    live.fence, live.lease_token, ending.state, live.started_at, live.last_heartbeat_at, live.expires_at,
    ${timeOf('@nowMs')}, ending.status, true, ending.error, nullif(ending.error_detail, 'null'),
    live.heartbeats, live.longest_silence_ms, live.longest_silence_since, ending.message_ids, live.holder
  from jsonb_to_recordset(@endings::jsonb) as ending (job_id uuid, state smallint, status smallint,
    error text,
    error_detail jsonb, message_ids text[])
  cross join ${lateralByKey('live_jobs', 'job_id', 'ending.job_id')} live
  returning *
), ${effects('@units', '@tallies', timeOf('@nowMs'))}
select ${endedLeaseColumns('lease')}, lease.lease_token, lease.holder from lease
  cross join ${lateralByKey('jobs', 'job_id', 'lease.job_id')} job`,
);

/**
 * Writes ended leases of jobs that continue, from their rows as they still are, and returns them. The caller
 * must still change the jobs.
 */
export async function closeLeases(
  sql: Sql,
  endings: readonly LeaseEnding[],
  { units, tallies }: EndEffects,
  nowMs: number,
): Promise<EndedLease[]> {
  const rows = endings.map(({ jobId, state, status, error, errorDetail, messageIds }) => ({
    job_id: jobId,
    state: leaseStateNumber(state),
    status: status === null ? null : statusNumber(status),
    error,
    error_detail: errorDetail,
    message_ids: messageIds,
  }));
  return close.query<EndedLease>(sql, {
    endings: JSON.stringify(rows),
    nowMs,
    units,
    tallies: tallyRows(tallies),
  });
}

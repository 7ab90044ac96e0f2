import type { JsonObject } from '../../../domain/jobs/job.ts';
import {
  claimedStates,
  leasedStates,
  type State,
  stateNamed,
  stateNumber,
} from '../../../domain/jobs/state-machine.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement, statement } from '../../connection/statement.ts';
import { numberArray, uuidArray } from '../array-params.ts';
import { keepLanesOf } from '../queue/lanes.ts';
import { tally, tallyRetried } from '../stats/tallies.ts';
import { crowdColumns } from './submit.ts';

/** A change of a locked row. Omitted fields stay as they are. */
export interface LiveChange {
  jobId: string;
  state: State;
  /** Returns the job to the queue, without a claim or lease. */
  unclaim?: boolean;
  /** With `unclaim`: delay until it may be claimed; 0 if omitted. */
  delayMs?: number;
  /** Renews its claim for this time from now. */
  claimTtlMs?: number;
  claimsLost?: number;
  /** Does not count the last attempt. */
  undoesAttempt?: boolean;
  cancelRequested?: boolean;
  progress?: number | null;
  note?: string | null;
}

const queued = stateNumber('QUEUED');
const claimed = claimedStates.map(stateNumber).join(', ');
const leased = leasedStates.map(stateNumber).join(', ');

/** Number of rows that entered these states less the number that left them. */
const moved = (was: string, is: string, states: string): string =>
  `count(*) filter (where ${is} in (${states})) - count(*) filter (where ${was} in (${states}))`;

const unitsIn = (states: string, state: string): string =>
  `coalesce(sum(cost_units) filter (where ${state} in (${states})), 0)`;

// `ready_at` moves only if an attempt has ended. A returned claim was no attempt, and its job has been
// waiting all the while. The statements that end leases take them out of the gauges.
const change = preparedStatement(
  ['changes'],
  `
with changed as (
  update live_jobs live set
    state = change.state,
    claimed_by = case when change.unclaim then null else live.claimed_by end,
    holder = case when change.unclaim then null else live.holder end,
    claim_expires_at = case when change.unclaim then null else coalesce(change.claim_until,
      live.claim_expires_at) end,
    request_id = case when change.unclaim then null else live.request_id end,
    check_at = case when change.unclaim then change.delayed_until else coalesce(change.claim_until,
      live.check_at) end,
    lease_token = case when change.unclaim then null else live.lease_token end,
    expires_at = case when change.unclaim then null else live.expires_at end,
    claims_lost = coalesce(change.claims_lost, live.claims_lost),
    attempts = live.attempts - coalesce(change.undoes_attempt, false)::int,
    cancel_requested = coalesce(change.cancel_requested, live.cancel_requested),
    progress = case when change.unclaim then null else coalesce(change.progress, live.progress) end,
    note = case when change.unclaim and change.note is null then null else coalesce(change.note,
      live.note) end,
    ready_at = case when change.unclaim and change.was in (${leased}) then coalesce(change.delayed_until,
      change.now)
      else live.ready_at end,
    updated_at = change.now
  from (
    select wanted.*, now, now + wanted.delay_ms * interval '1 ms' as delayed_until,
      now + wanted.claim_ttl_ms * interval '1 ms' as claim_until, before.state as was
    from (select clock_timestamp() as now) clock, jsonb_to_recordset(@changes::jsonb)
      as wanted (job_id uuid, state smallint,
      unclaim boolean, delay_ms float8, claim_ttl_ms float8, claims_lost smallint, undoes_attempt boolean,
      cancel_requested boolean, progress float8, note text)
    cross join ${lateralByKey('live_jobs', 'job_id', 'wanted.job_id')} before
  ) change
  where ${keyEquals('live.job_id', 'change.job_id')}
  returning live.lane_id, live.cost_units, live.updated_at, live.state, change.was
)
${tally(`(select * from changed where state <> was and ${queued} in (state, was)) moved`, 'updated_at', {
  queued: moved('was', 'state', `${queued}`),
  claimed: moved('was', 'state', claimed),
  reserved: `${unitsIn(claimed, 'state')} - ${unitsIn(claimed, 'was')}`,
})}`,
);

export async function changeLiveJobs(sql: Sql, changes: readonly LiveChange[]): Promise<void> {
  if (changes.length === 0) return;
  const rows = changes.map((each) => ({
    job_id: each.jobId,
    state: stateNumber(each.state),
    unclaim: each.unclaim ?? false,
    delay_ms: each.delayMs === 0 ? undefined : each.delayMs,
    claim_ttl_ms: each.claimTtlMs,
    claims_lost: each.claimsLost,
    undoes_attempt: each.undoesAttempt,
    cancel_requested: each.cancelRequested,
    progress: each.progress,
    note: each.note,
  }));
  await change.query(sql, { changes: JSON.stringify(rows) });
}

/** How a locked job without a lease ends. */
export interface Ending {
  jobId: string;
  state: State;
  error: string | null;
}

const countEnded = (state: State): string => `count(*) filter (where final_state = ${stateNumber(state)})`;

// The outcome and the tally have the same time, so that a retry finds the minute in which a failure was
// counted.
const end = preparedStatement(
  ['endings'],
  `
with clock as materialized (
  select clock_timestamp() as now
), deleted as (
  delete from live_jobs live
  using jsonb_to_recordset(@endings::jsonb) as ending (job_id uuid, state smallint, error text), clock
  where ${keyEquals('live.job_id', 'ending.job_id')}
  returning live.*, ending.state as final_state, ending.error, clock.now
), outcome as (
  insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, progress, note,
    started_at, finished_at, error_text)
  select job_id, final_state, attempts, claimed_by, lease_id, cancel_requested, progress, note, started_at,
    now, error
  from deleted
)
${tally('deleted', 'now', {
  queued: `-count(*) filter (where state = ${queued})`,
  claimed: `-count(*) filter (where state in (${claimed}))`,
  reserved: `-${unitsIn(claimed, 'state')}`,
  done: countEnded('DONE'),
  failed: countEnded('FAILED'),
  canceled: countEnded('CANCELED'),
  timeouts: countEnded('TIMEOUT'),
})}`,
);

/** Ends locked jobs: deletes their live rows and writes their outcomes. */
export async function endJobs(sql: Sql, endings: readonly Ending[]): Promise<void> {
  if (endings.length === 0) return;
  const rows = endings.map(({ jobId, state, error }) => ({
    job_id: jobId,
    state: stateNumber(state),
    error,
  }));
  await end.query(sql, { endings: JSON.stringify(rows) });
}

/** A time in the format of answers, whatever time zone the database uses. */
const events = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

// Rows are locked in the order of their ids, so that two transactions with the same jobs cannot deadlock.
const revive = statement(
  ['jobIds', 'states'],
  `
with locked as materialized (
  select job_id from job_outcomes where job_id = any (@jobIds::uuid[]) order by job_id for update
), outcome as (
  delete from job_outcomes using locked
  where ${keyEquals('job_outcomes.job_id', 'locked.job_id')}
    and job_outcomes.state = any (@states::smallint[])
  returning job_outcomes.*
), live as (
  insert into live_jobs (job_id, lane_id, seq, priority, cost_units, state, attempts, attempts_limit,
    claims_lost, lease_id, cancel_requested, updated_at, check_at, bytes, ready_at, ${crowdColumns})
  select job.job_id, job.lane_id, job.seq, job.priority, job.cost_units, ${queued}, outcome.attempts,
    outcome.attempts + job.max_attempts, 0, outcome.lease_id, false, clock_timestamp(),
    case when job.run_at > clock_timestamp() then job.run_at end, job.bytes,
      greatest(job.run_at, clock_timestamp()), ${crowdColumns}
  from outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job
  cross join ${lateralByKey('lanes', 'lane_id', 'job.lane_id')} lane
  returning lane_id, updated_at
), lease as (
  insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state,
    granted_at, last_heartbeat_at, expires_at, ended_at, release_status, requeued, dead_lettered, error_text,
    error_detail, heartbeats, longest_silence_ms, longest_silence_since, message_ids, holder)
  select outcome.lease_id, outcome.job_id, outcome.attempts, outcome.claimed_by, job.cost_units,
    outcome.ttl_s, outcome.fence, outcome.lease_token, outcome.lease_state, outcome.started_at,
    outcome.last_heartbeat_at, outcome.expires_at, outcome.finished_at, outcome.release_status, false,
      outcome.dead_stream is not null,
    outcome.error_text, outcome.error_detail, outcome.heartbeats, outcome.longest_silence_ms,
    outcome.longest_silence_since, outcome.message_ids, outcome.holder
  from outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job
    where outcome.fence is not null
), tallied as (${tally('live', 'updated_at', { queued: 'count(*)' })}
), retried as (${tallyRetried(`(
    select job.lane_id, outcome.state, outcome.finished_at
    from outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job
  ) ended`)}
)
select job_id, state, jsonb_build_object('status', state, 'error', error_text, 'error_detail', error_detail,
  'result_data', result, 'metrics', metrics, 'started_at', ${events('started_at')}, 'finished_at',
    ${events('finished_at')},
  'attempts', attempts) as previous
from outcome`,
);

export interface Revived {
  jobId: string;
  state: State;
  /** The previous result, for the history. */
  previous: JsonObject;
}

/**
 * Requeues ended jobs, each at its old position; their last leases become earlier ones. Skips jobs that have
 * not ended in one of these states.
 */
export async function reviveJobs(
  sql: Sql,
  jobIds: readonly string[],
  from: readonly State[],
): Promise<Revived[]> {
  if (jobIds.length === 0) return [];
  await keepLanesOf(sql, jobIds);
  type Row = { job_id: string; state: number; previous: JsonObject };
  const rows = await revive.query<Row>(sql, {
    jobIds: uuidArray(jobIds),
    states: numberArray(from.map(stateNumber)),
  });
  return rows.map(({ job_id, state, previous }) => {
    const ended = stateNamed(state);
    return { jobId: job_id, state: ended, previous: { ...previous, status: ended } };
  });
}

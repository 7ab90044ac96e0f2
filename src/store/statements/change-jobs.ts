import type { Json, JsonObject } from '../../domain/job.ts';
import {
  type EventType,
  eventNumber,
  isLeased,
  leasedStates,
  type State,
  stateNamed,
  stateNumber,
} from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import { type Sql, timeMs } from '../sql.ts';
import { textArray, uuidArray } from './arrays.ts';
import { isAwake } from './pulse.ts';

/** A live row, locked, and the database's time at which it was. */
export interface LockedJob {
  jobId: string;
  state: State;
  costUnits: number;
  attempts: number;
  attemptsLimit: number;
  claimsLost: number;
  claimedBy: string | null;
  claimExpiresAtMs: number | null;
  requestId: string | null;
  checkAtMs: number | null;
  leaseId: string | null;
  leaseToken: string | null;
  expiresAtMs: number | null;
  lastHeartbeatAtMs: number | null;
  leaseEndsAtMs: number | null;
  cancelRequested: boolean;
  /** Leases may be judged at this time; see `pulse.ts`. */
  awake: boolean;
  nowMs: number;
}

interface LockedRow {
  job_id: string;
  state: number;
  cost_units: number;
  attempts: number;
  attempts_limit: number;
  claims_lost: number;
  claimed_by: string | null;
  claim_expires_at: string | null;
  request_id: string | null;
  check_at: string | null;
  lease_id: string | null;
  lease_token: string | null;
  expires_at: string | null;
  last_heartbeat_at: string | null;
  lease_ends_at: string | null;
  cancel_requested: boolean;
  awake: boolean;
  now: string;
}

const lockedColumns = `job_id, state, cost_units, attempts, attempts_limit, claims_lost, claimed_by, claim_expires_at,
  request_id, check_at, lease_id, lease_token, expires_at, last_heartbeat_at, lease_ends_at,
  cancel_requested, now,
  ${isAwake('now')} as awake`;

/** The clock is read once all rows are locked: read with each row, it would be read before the last was waited for. */
const clock = `clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now from (select count(*) from locked) as locked_all
)`;

// Rows are locked in the order of their ids, as everywhere, so that two transactions that want the same rows never wait for each other in a circle.
const lock = hot(`
with locked as materialized (
  select * from live_jobs where job_id = any ($1::uuid[]) order by job_id for update
), ${clock}
select ${lockedColumns} from locked, clock`);

/** Locks the live rows of these jobs. A job that has ended has none. */
export async function lockLiveJobs(
  sql: Sql,
  jobIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, LockedJob>> {
  const rows = await sql.query<LockedRow>(lock, [textArray(jobIds)], signal);
  return new Map(rows.map((row) => [row.job_id, toLocked(row)]));
}

const lockByLease = (how: string) =>
  hot(`
with locked as materialized (
  select * from live_jobs where lease_id = any ($1::uuid[]) order by job_id ${how}
), ${clock}
select ${lockedColumns} from locked, clock`);

const lockFreeByLease = lockByLease('for update skip locked');
const lockAllByLease = lockByLease('for update');

/** Locks the live rows whose present or last lease is one of these, by lease. With `wait`, those that others have too. */
export async function lockLeasedJobs(
  sql: Sql,
  leaseIds: readonly string[],
  wait: boolean,
  signal?: AbortSignal,
): Promise<Map<string, LockedJob>> {
  const rows = await sql.query<LockedRow>(
    wait ? lockAllByLease : lockFreeByLease,
    [uuidArray(leaseIds)],
    signal,
  );
  return new Map(rows.map((row) => [row.lease_id ?? '', toLocked(row)]));
}

// A lease that was renewed since its row was put down for a look is put down for a later one, and needs no look.
const lockDue = hot(`
with locked as materialized (
  select * from live_jobs where check_at <= (select clock_timestamp()) order by check_at limit $1
  for update skip locked
), ${clock}, renewed as (
  update live_jobs live set check_at = locked.expires_at
  from locked, clock
  where live.job_id = locked.job_id and locked.state in (${leasedStates.map(stateNumber).join(', ')})
    and locked.expires_at > clock.now
  returning live.job_id
)
select (select count(*)::int from renewed) as renewed, due.*
from (values (1)) as one (one) left join (
  select ${lockedColumns} from locked, clock
  where check_at <= clock.now
    and not (state in (${leasedStates.map(stateNumber).join(', ')}) and expires_at > clock.now)
) due on true`);

export interface DueJobs {
  /** Leases that were not due after all. */
  renewed: number;
  due: LockedJob[];
}

/**
 * Looks at up to `limit` live rows whose time has come, passing over those that somebody else has. Renewed leases are
 * re-armed, the others are locked.
 */
export async function lockDueJobs(sql: Sql, limit: number): Promise<DueJobs> {
  type Row = Partial<LockedRow> & { renewed: number };
  const rows = await sql.query<Row>(lockDue, [limit]);
  const due = rows.filter((row): row is Row & LockedRow => row.job_id !== null);
  return { renewed: rows[0]?.renewed ?? 0, due: due.map(toLocked) };
}

const nextDue = hot(`
select extract(epoch from min(check_at) - clock_timestamp())::float8 * 1000 as wait
from live_jobs where check_at < 'infinity'`);

const soonest = hot(`
select state, extract(epoch from greatest(check_at, expires_at) - clock_timestamp())::float8 * 1000 as wait
from live_jobs where check_at < 'infinity' order by check_at limit 20`);

export interface Soon {
  /** How long until a job may come into the queue; null where none of the next rows says so. */
  jobMs: number | null;
  /** How long until a lease runs out, if it is not renewed meanwhile. */
  leaseMs: number | null;
}

/** What the next rows to be looked at say of the near future. */
export async function soonestInMs(sql: Sql): Promise<Soon> {
  const rows = await sql.query<{ state: number; wait: number }>(soonest, []);
  const first = (isWanted: (state: State) => boolean) => {
    const waits = rows.filter(({ state }) => isWanted(stateNamed(state))).map(({ wait }) => wait);
    return waits.length === 0 ? null : Math.max(Math.min(...waits), 0);
  };
  return { jobMs: first((state) => !isLeased(state)), leaseMs: first(isLeased) };
}

/** How long until the next live row is due: negative where one is overdue, null where none is waiting. */
export async function nextDueInMs(sql: Sql): Promise<number | null> {
  const [row] = await sql.query<{ wait: number | null }>(nextDue, []);
  return row?.wait ?? null;
}

function toLocked(row: LockedRow): LockedJob {
  return {
    jobId: row.job_id,
    state: stateNamed(row.state),
    costUnits: row.cost_units,
    attempts: row.attempts,
    attemptsLimit: row.attempts_limit,
    claimsLost: row.claims_lost,
    claimedBy: row.claimed_by,
    claimExpiresAtMs: timeMs(row.claim_expires_at),
    requestId: row.request_id,
    checkAtMs: timeMs(row.check_at),
    leaseId: row.lease_id,
    leaseToken: row.lease_token,
    expiresAtMs: timeMs(row.expires_at),
    lastHeartbeatAtMs: timeMs(row.last_heartbeat_at),
    leaseEndsAtMs: timeMs(row.lease_ends_at),
    cancelRequested: row.cancel_requested,
    awake: row.awake,
    nowMs: timeMs(row.now),
  };
}

/** What becomes of a locked row. Fields that are left out stay as they are. */
export interface LiveChange {
  jobId: string;
  state: State;
  /** Gives the job back to the queue: nobody's claim or lease is on it. */
  unclaim?: boolean;
  /** With `unclaim`: it may be claimed only after so long; at once where left out. */
  delayMs?: number;
  /** Renews its claim for so long from now. */
  claimTtlMs?: number;
  claimsLost?: number;
  cancelRequested?: boolean;
  progress?: number | null;
  note?: string | null;
}

const change = hot(`
update live_jobs live set
  state = change.state,
  claimed_by = case when change.unclaim then null else live.claimed_by end,
  claim_expires_at = case when change.unclaim then null else coalesce(change.claim_until, live.claim_expires_at) end,
  request_id = case when change.unclaim then null else live.request_id end,
  check_at = case when change.unclaim then change.ready_at else coalesce(change.claim_until, live.check_at) end,
  lease_token = case when change.unclaim then null else live.lease_token end,
  expires_at = case when change.unclaim then null else live.expires_at end,
  claims_lost = coalesce(change.claims_lost, live.claims_lost),
  cancel_requested = coalesce(change.cancel_requested, live.cancel_requested),
  progress = case when change.unclaim then null else coalesce(change.progress, live.progress) end,
  note = case when change.unclaim and change.note is null then null else coalesce(change.note, live.note) end,
  updated_at = change.now
from (
  select given.*, now, now + given.delay_ms * interval '1 ms' as ready_at,
    now + given.claim_ttl_ms * interval '1 ms' as claim_until
  from (select clock_timestamp() as now) clock, jsonb_to_recordset($1::jsonb) as given (job_id uuid, state smallint,
    unclaim boolean, delay_ms float8, claim_ttl_ms float8, claims_lost smallint, cancel_requested boolean,
    progress float8, note text)
) change
where live.job_id = change.job_id`);

export async function changeLiveJobs(sql: Sql, changes: readonly LiveChange[]): Promise<void> {
  if (changes.length === 0) return;
  const rows = changes.map((each) => ({
    job_id: each.jobId,
    state: stateNumber(each.state),
    unclaim: each.unclaim ?? false,
    delay_ms: each.delayMs === 0 ? undefined : each.delayMs,
    claim_ttl_ms: each.claimTtlMs,
    claims_lost: each.claimsLost,
    cancel_requested: each.cancelRequested,
    progress: each.progress,
    note: each.note,
  }));
  await sql.query(change, [JSON.stringify(rows)]);
}

/** How a locked job ends. */
export interface Ending {
  jobId: string;
  state: State;
  error: string | null;
  errorDetail?: JsonObject | null;
  result?: Json;
  metrics?: JsonObject | null;
}

const end = hot(`
with ending as materialized (
  select * from jsonb_to_recordset($1::jsonb) as ending (job_id uuid, state smallint, error text, error_detail jsonb,
    result jsonb, metrics jsonb)
), gone as (
  delete from live_jobs live using ending where live.job_id = ending.job_id
  returning live.*, ending.state as final_state, ending.error, ending.error_detail, ending.result, ending.metrics
)
insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, progress, note, started_at,
  finished_at, error_text, error_detail, result, metrics)
select job_id, final_state, attempts, claimed_by, lease_id, cancel_requested, progress, note, started_at,
  clock_timestamp(), error, nullif(error_detail, 'null'), nullif(result, 'null'), nullif(metrics, 'null')
from gone`);

/** Ends locked jobs: their live rows go, their outcomes stay. */
export async function endJobs(sql: Sql, endings: readonly Ending[]): Promise<void> {
  if (endings.length === 0) return;
  const rows = endings.map(({ jobId, state, error, errorDetail, result, metrics }) => ({
    job_id: jobId,
    state: stateNumber(state),
    error,
    error_detail: errorDetail,
    result,
    metrics,
  }));
  await sql.query(end, [JSON.stringify(rows)]);
}

const revive = `
with outcome as (
  delete from job_outcomes where job_id = $1 and state = any ($2::smallint[]) returning *
), live as (
  insert into live_jobs (job_id, lane_id, seq, priority, cost_units, state, attempts, attempts_limit, claims_lost,
    lease_id, cancel_requested, updated_at, check_at, bytes)
  select job.job_id, job.lane_id, job.seq, job.priority, job.cost_units, ${stateNumber('QUEUED')}, outcome.attempts,
    outcome.attempts + job.max_attempts, 0, outcome.lease_id, false, clock_timestamp(),
    case when job.run_at > clock_timestamp() then job.run_at end, job.bytes
  from outcome join jobs job on job.job_id = outcome.job_id
)
select state, jsonb_build_object('status', state, 'error', error_text, 'error_detail', error_detail,
  'result_data', result, 'metrics', metrics, 'started_at', started_at, 'finished_at', finished_at,
  'attempts', attempts) as previous
from outcome`;

export interface Revived {
  state: State;
  /** The old result, for the history. */
  previous: JsonObject;
}

/** Puts an ended job back in line, at its old place. Answers nothing where it has not ended in one of these states. */
export async function reviveJob(sql: Sql, jobId: string, from: readonly State[]): Promise<Revived | null> {
  const states = `{${from.map(stateNumber).join(',')}}`;
  const [row] = await sql.query<{ state: number; previous: JsonObject }>(revive, [jobId, states]);
  if (!row) return null;
  const state = stateNamed(row.state);
  return { state, previous: { ...row.previous, status: state } };
}

export interface NewEvent {
  jobId: string;
  leaseId?: string | null;
  type: EventType;
  from: State | null;
  to: State | null;
  actor: string;
  data?: JsonObject;
}

const tell = hot(`
insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, data)
select clock_timestamp(), job_id, lease_id, type, from_state, to_state, actor, data
from jsonb_to_recordset($1::jsonb) as event (job_id uuid, lease_id uuid, type smallint, from_state smallint, to_state smallint,
  actor text, data jsonb)`);

/** Writes the history, in the order given. */
export async function writeEvents(sql: Sql, events: readonly NewEvent[]): Promise<void> {
  if (events.length === 0) return;
  const number = (state: State | null) => (state === null ? null : stateNumber(state));
  const rows = events.map(({ jobId, leaseId, type, from, to, actor, data }) => ({
    job_id: jobId,
    lease_id: leaseId ?? null,
    type: eventNumber(type),
    from_state: number(from),
    to_state: number(to),
    actor,
    data: data ?? null,
  }));
  await sql.query(tell, [JSON.stringify(rows)]);
}

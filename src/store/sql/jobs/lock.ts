import type { Holder } from '../../../domain/access/holder.ts';
import {
  isLeased,
  leasedStates,
  type State,
  stateNamed,
  stateNumber,
} from '../../../domain/jobs/state-machine.ts';
import { keyEquals, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { textArray, uuidArray } from '../array-params.ts';
import { isAwake } from '../outages.ts';
import { messageNames } from '../streams/messages.ts';

/** The columns of a job's own row that matter for state changes; they never change. */
export interface JobPolicy {
  addonId: string;
  stream: string | null;
  retryBackoffS: number;
  isUnique: boolean;
}

/** A locked live row, and the database's time after the lock. */
export interface LockedJob extends JobPolicy {
  jobId: string;
  laneId: number;
  state: State;
  costUnits: number;
  attempts: number;
  attemptsLimit: number;
  claimsLost: number;
  claimedBy: string | null;
  holder: Holder;
  claimExpiresAtMs: number | null;
  requestId: string | null;
  checkAtMs: number | null;
  leaseId: string | null;
  leaseToken: string | null;
  /** When the current or last lease was granted. */
  startedAtMs: number | null;
  expiresAtMs: number | null;
  lastHeartbeatAtMs: number | null;
  leaseEndsAtMs: number | null;
  cancelRequested: boolean;
  /** Whether leases may be declared expired at this time; see `store/sql/outages.ts`. */
  awake: boolean;
  nowMs: number;
  /** All ids that its message had in Redis, if the caller asked for messages. */
  messageIds?: readonly string[] | undefined;
}

interface LockedRow {
  job_id: string;
  lane_id: number;
  state: number;
  cost_units: number;
  attempts: number;
  attempts_limit: number;
  claims_lost: number;
  claimed_by: string | null;
  holder: Holder;
  claim_expires_at: string | null;
  request_id: string | null;
  check_at: string | null;
  lease_id: string | null;
  lease_token: string | null;
  started_at: string | null;
  expires_at: string | null;
  last_heartbeat_at: string | null;
  lease_ends_at: string | null;
  cancel_requested: boolean;
  awake: boolean;
  now: string;
  addon_id: string;
  stream: string | null;
  retry_backoff_s: number;
  is_unique: boolean;
  message_ids?: string[];
}

/** The columns that are returned for the `locked` rows. */
const lockedRows = `select locked.job_id, locked.lane_id, locked.started_at, locked.state, locked.cost_units,
  locked.attempts, locked.attempts_limit, locked.claims_lost, locked.claimed_by, locked.holder,
    locked.claim_expires_at,
    locked.request_id, locked.check_at, locked.lease_id, locked.lease_token,
  locked.expires_at, locked.last_heartbeat_at, locked.lease_ends_at, locked.cancel_requested, clock.now,
  ${isAwake('now')} as awake, job.addon_id, job.stream, job.retry_backoff_s, job.is_unique
from clock, locked cross join ${lateralByKey('jobs', 'job_id', 'locked.job_id')} job`;

/**
 * Reads the clock after all rows are locked: read with each row, it would precede the wait for the last lock.
 */
const clock = `clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now from (select count(*) from locked) as locked_all
)`;

// Rows are locked in the order of their ids, as everywhere, so that two transactions with the same rows
// cannot deadlock.
const lockById = (how: string) =>
  preparedStatement(
    ['jobIds'],
    `
with locked as materialized (
  select * from live_jobs where job_id = any (@jobIds::uuid[]) order by job_id ${how}
), ${clock}
${lockedRows}`,
  );

const lockFree = lockById('for update skip locked');
const lockAll = lockById('for update');

/**
 * Locks the live rows of these jobs. An ended job has none. With `wait`, waits for rows that are locked;
 * otherwise skips them.
 */
export async function lockLiveJobs(
  sql: Sql,
  jobIds: readonly string[],
  wait: boolean,
  signal?: AbortSignal,
): Promise<Map<string, LockedJob>> {
  const rows = await (wait ? lockAll : lockFree).query<LockedRow>(sql, { jobIds: textArray(jobIds) }, signal);
  return new Map(rows.map((row) => [row.job_id, toLocked(row)]));
}

// The same order, but not by the column itself: the planner might choose the index on it and read all of it.
const lockByLease = (how: string, withMessages: boolean) =>
  preparedStatement(
    ['leaseIds'],
    `
with locked as materialized (
  select * from live_jobs where lease_id = any (@leaseIds::uuid[]) order by uuid_send(job_id) ${how}
), ${clock}
${
  withMessages
    ? `select leased.*, ${messageNames('message')} as message_ids
from (${lockedRows}) leased left join ${lateralByKey('stream_messages', 'job_id', 'leased.job_id')} message
  on message.attempt = leased.attempts`
    : lockedRows
}`,
  );

const skipping = 'for update skip locked';
const lockLeased = {
  free: { plain: lockByLease(skipping, false), withMessages: lockByLease(skipping, true) },
  all: { plain: lockByLease('for update', false), withMessages: lockByLease('for update', true) },
};

/**
 * Locks the live rows whose current or last lease is one of these, by lease. With `wait`, waits for rows that
 * are locked; otherwise skips them.
 */
export async function lockLeasedJobs(
  sql: Sql,
  leaseIds: readonly string[],
  { wait, withMessages = false }: { wait: boolean; withMessages?: boolean },
  signal?: AbortSignal,
): Promise<Map<string, LockedJob>> {
  const statement = lockLeased[wait ? 'all' : 'free'][withMessages ? 'withMessages' : 'plain'];
  const rows = await statement.query<LockedRow>(sql, { leaseIds: uuidArray(leaseIds) }, signal);
  return new Map(rows.map((row) => [row.lease_id ?? '', toLocked(row)]));
}

/** Ignores earlier deadlines; see `engine/maintenance/deadline-cursor.ts`. */
const since = 'to_timestamp(@fromMs::float8 / 1000)';
const front = Number.NEGATIVE_INFINITY;

// A lease that was renewed since its deadline was set gets a later deadline, and needs no check.
const lockDue = preparedStatement(
  ['limit', 'fromMs'],
  `
with locked as materialized (
  select * from live_jobs where check_at >= ${since} and check_at <= (select clock_timestamp())
  order by check_at limit @limit
  for update skip locked
), ${clock}, renewed as (
  update live_jobs live set check_at = locked.expires_at
  from locked, clock
  where ${keyEquals('live.job_id', 'locked.job_id')}
    and locked.state in (${leasedStates.map(stateNumber).join(', ')})
    and locked.expires_at > clock.now
  returning live.job_id
)
select (select count(*)::int from renewed) as renewed, due.*
from (values (1)) as one (one) left join (
  ${lockedRows}
  where locked.check_at <= clock.now
    and not (locked.state in (${leasedStates.map(stateNumber).join(', ')}) and locked.expires_at > clock.now)
) due on true`,
);

export interface DueJobs {
  /** Number of leases that were not due after all. */
  renewed: number;
  due: LockedJob[];
}

/**
 * Checks up to `limit` live rows whose deadline has passed, and skips locked rows. Renewed leases get a new
 * deadline; the other rows are returned locked.
 */
export async function lockDueJobs(sql: Sql, limit: number, fromMs = front): Promise<DueJobs> {
  type Row = Partial<LockedRow> & { renewed: number };
  const rows = await lockDue.query<Row>(sql, { limit, fromMs });
  const due = rows.filter((row): row is Row & LockedRow => row.job_id !== null);
  return { renewed: rows[0]?.renewed ?? 0, due: due.map(toLocked) };
}

const nextDue = preparedStatement(
  ['fromMs'],
  `
select extract(epoch from clock_timestamp())::float8 * 1000 as "nowMs",
  extract(epoch from min(check_at))::float8 * 1000 as "firstMs"
from live_jobs where check_at >= ${since} and check_at < 'infinity'`,
);

const soonest = preparedStatement(
  ['fromMs'],
  `
select state, extract(epoch from greatest(check_at, expires_at) - clock_timestamp())::float8 * 1000 as wait
from live_jobs where check_at >= ${since} and check_at < 'infinity' order by check_at limit 20`,
);

export interface NextDeadlines {
  /** Time until a job may become ready; null if none of the next rows says so. */
  jobMs: number | null;
  /** Time until a lease expires, unless it is renewed. */
  leaseMs: number | null;
}

/** The next deadlines of jobs and leases, from the rows that are due next. */
export async function nextDeadlinesInMs(sql: Sql, fromMs = front): Promise<NextDeadlines> {
  const rows = await soonest.query<{ state: number; wait: number }>(sql, { fromMs });
  const first = (isWanted: (state: State) => boolean) => {
    const waits = rows.filter(({ state }) => isWanted(stateNamed(state))).map(({ wait }) => wait);
    return waits.length === 0 ? null : Math.max(Math.min(...waits), 0);
  };
  return { jobMs: first((state) => !isLeased(state)), leaseMs: first(isLeased) };
}

/** The deadline of the next live row, and the current time of the same clock. */
export async function readNextDue(sql: Sql, fromMs = front): Promise<NextDue> {
  const [row] = await nextDue.query<NextDue>(sql, { fromMs });
  if (!row) throw new Error('the database did not tell the time');
  return row;
}

/** In milliseconds since 1970. */
export interface NextDue {
  nowMs: number;
  /** Null if no row has a deadline. */
  firstMs: number | null;
}

function toLocked(row: LockedRow): LockedJob {
  return {
    jobId: row.job_id,
    laneId: row.lane_id,
    state: stateNamed(row.state),
    costUnits: row.cost_units,
    attempts: row.attempts,
    attemptsLimit: row.attempts_limit,
    claimsLost: row.claims_lost,
    claimedBy: row.claimed_by,
    holder: row.holder,
    claimExpiresAtMs: timeMs(row.claim_expires_at),
    requestId: row.request_id,
    checkAtMs: timeMs(row.check_at),
    leaseId: row.lease_id,
    leaseToken: row.lease_token,
    startedAtMs: timeMs(row.started_at),
    expiresAtMs: timeMs(row.expires_at),
    lastHeartbeatAtMs: timeMs(row.last_heartbeat_at),
    leaseEndsAtMs: timeMs(row.lease_ends_at),
    cancelRequested: row.cancel_requested,
    awake: row.awake,
    nowMs: timeMs(row.now),
    addonId: row.addon_id,
    stream: row.stream,
    retryBackoffS: row.retry_backoff_s,
    isUnique: row.is_unique,
    messageIds: row.message_ids,
  };
}

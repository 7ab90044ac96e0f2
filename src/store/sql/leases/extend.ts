import { eventNumber, leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Heartbeat, LeaseWithJob } from '../../../domain/leases/lease.ts';
import { repeatable } from '../../connection/repeatable.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { integers, nullIfAllNull, numberArray, textArray, uuidArray } from '../array-params.ts';
import { type JobRecord, jobColumns, liveColumns, toJob } from '../jobs/record.ts';
import { activeLeaseOf, type GrantedLeaseRecord, grantedLeaseColumns } from './record.ts';

/**
 * Result of one heartbeat. `not found`: there is no such row, another transaction has locked it, or the lease
 * was named twice.
 */
export type Extended =
  | { kind: 'extended'; ttlRemainingMs: number; cancelRequested: boolean }
  | { kind: 'ended' }
  | { kind: 'wrong holder' }
  | { kind: 'wrong worker' }
  | { kind: 'wrong token' }
  | { kind: 'wrong job' }
  | { kind: 'not found' };

export interface ExtendResult {
  nowMs: number;
  /** One for each heartbeat, in their order. */
  results: readonly Extended[];
  /** Jobs that changed beyond the time of their last heartbeat. */
  changedJobs: readonly string[];
}

const leased = leasedStates.map(stateNumber).join(', ');
const ended = -1;
const wrongWorker = -2;
const wrongToken = -3;
const wrongJob = -4;
const wrongHolder = -5;

// Maximum of the column; larger values are stored as this, because a heartbeat must not fail.
const intMax = 2 ** 31 - 1;

/**
 * A lease with heartbeats and no count is older than the column, and its earlier heartbeats are unknown.
 * Until the first heartbeat, the time of the last one is that of the grant; afterwards there is a count. The
 * condition therefore also holds for a first heartbeat in the grant's own millisecond, and after a clock that
 * was set back. One case is not detected: a server of the previous version accepted a heartbeat in that very
 * millisecond. Then one heartbeat is not counted.
 */
const isCounted = '(live.heartbeats is not null or live.last_heartbeat_at = live.started_at)';

/**
 * Whether the time since the last heartbeat is the longest since the grant. Each heartbeat tests this, and
 * few pass: only then is the time computed.
 */
const isLongestSilence = `${isCounted} and (
        live.longest_silence_ms is null
        or decided.now > live.last_heartbeat_at + live.longest_silence_ms * interval '1 ms'
      )`;

const silenceMs = `least(
        greatest(date_part('epoch', decided.now - live.last_heartbeat_at) * 1000, 0), ${intMax}
      )::int`;

/** Whether the heartbeat changes more of the job than the time of its last heartbeat. */
const isShown = `decided.state = ${stateNumber('LEASED')} or decided.progress is not null
      or decided.message is not null`;

/**
 * Locking: the statement locks rows first, then reads the clock, and then checks each row. A lease that
 * expired while the statement waited for its row stays expired. Without `wait`, locked rows are skipped, so
 * that one of them never delays all other leases; the caller repeats those with `wait`. A statement that
 * waits for no row needs no order of locks; one that waits uses the common order.
 *
 * Writing: no written column is in an index or in the condition of one, except the state at the first
 * heartbeat. A locked row is updated by its ctid, which saves another lookup. If another transaction moved it
 * between this statement's snapshot and the lock, it is not found, and the heartbeat is repeated. A
 * statement that waits for rows often finds them moved, and therefore looks them up by key.
 *
 * Cost: parts pass on only the columns that the next part needs, and rows are evaluated where they are used
 * instead of being materialized again. At this rate each column and each copy counts.
 *
 * Answer: one row of numbers, because decoding a row for each heartbeat would take the driver longer than all
 * the rest. A negative number is the problem. Other numbers are twice the remaining time in ms, plus one if a
 * cancellation is requested. A lease that is named twice is written and answered once.
 */
const extend = ({ locking, isSame, returned, answer }: ExtendParts) =>
  // A second run extends the same leases once more.
  repeatable(
    preparedStatement(
      ['leaseIds', 'workerIds', 'holders', 'tokens', 'progresses', 'messages', 'jobIds'],
      `
with heartbeat as (
  select * from unnest(
    @leaseIds::uuid[], @workerIds::text[], @holders::int[], @tokens::text[], @progresses::float8[],
    @messages::text[], @jobIds::text[]
  ) with ordinality as heartbeat (lease_id, worker_id, holder, token, progress, message, job_id, n)
), locked as materialized (
  select heartbeat.n, heartbeat.progress, heartbeat.message, live.place, live.job_id, live.state,
    live.cancel_requested, live.expires_at, live.lease_ends_at,
    live.lease_ttl_s + live.lease_grace_s as lasts_s,
    case
      when live.state not in (${leased}) then ${ended}
      when live.holder <> heartbeat.holder and heartbeat.token is distinct from live.lease_token::text
        then ${wrongHolder}
      when live.claimed_by <> heartbeat.worker_id then ${wrongWorker}
      when heartbeat.token is not null and heartbeat.token <> live.lease_token::text then ${wrongToken}
      when heartbeat.job_id is not null and heartbeat.job_id <> live.job_id::text then ${wrongJob}
      else 0
    end as problem
  from ${locking}
), clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now
  from (select count(*) from locked) as locked_all
), decided as not materialized (
  select n, progress, message, place, job_id, state, cancel_requested, now,
    case
      when problem <> 0 then problem
      when expires_at <= now then ${ended}
      when lease_ends_at is null then lasts_s * 1000
      else least(lasts_s * 1000, date_part('epoch', lease_ends_at - now) * 1000)::int
    end as left_ms
  from locked, clock
), extended as (
  update live_jobs live set
    state = ${stateNumber('RUNNING')},
    claim_expires_at = null,
    last_heartbeat_at = decided.now,
    expires_at = decided.now + left_ms * interval '1 ms',
    progress = coalesce(decided.progress, live.progress),
    note = coalesce(decided.message, live.note),
    heartbeats = case when ${isCounted} then least(coalesce(live.heartbeats, 0), ${intMax - 1}) + 1 end,
    longest_silence_ms = case
      when ${isLongestSilence}
      then ${silenceMs}
      else live.longest_silence_ms
    end,
    longest_silence_since = case
      when ${isLongestSilence}
      then live.last_heartbeat_at
      else live.longest_silence_since
    end,
    updated_at = case when ${isShown} then decided.now else live.updated_at end
  from decided
  where ${isSame} and left_ms >= 0
  returning n, left_ms * 2 + decided.cancel_requested::int as result, now,
    case when ${isShown} then decided.job_id end as changed_job,
    case when decided.state = ${stateNumber('LEASED')} then live.lease_id end as begun,
    ${returned}
), recorded as (
  insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor)
  select now, changed_job, begun, ${eventNumber('JOB_RUNNING')},
    ${stateNumber('LEASED')}, ${stateNumber('RUNNING')}, claimed_by
  from extended where begun is not null
), answered as (
  select n, result, changed_job from extended
  union all
  select n, left_ms, null from decided where left_ms < 0
)
${answer}`,
    ),
  );

interface ExtendParts {
  locking: string;
  isSame: string;
  /** What the parts after the update need of the live row; `claimed_by` at least. */
  returned: string;
  answer: string;
}

const numbersOnly = {
  returned: 'live.claimed_by',
  answer: `select date_part('epoch', (select now from clock)) * 1000 as now,
  array_agg(n)::text as numbers,
  array_agg(result)::text as results,
  array_agg(changed_job) filter (where changed_job is not null)::text as changed_jobs
from answered`,
};

/** One row for each heartbeat, for the few callers that show the lease and its job. */
const withJobs = {
  returned: 'live.*',
  answer: `select date_part('epoch', (select now from clock)) * 1000 as now,
  answered.n::int as n, answered.result, answered.changed_job,
  ${jobColumns('job')}, ${liveColumns('extended')}, ${grantedLeaseColumns('extended')}
from answered
left join extended on extended.n = answered.n
left join ${lateralByKey('jobs', 'job_id', 'extended.job_id')} job on true`,
};

const skipsLocked = {
  locking: `heartbeat cross join
    ${lateralByKey('live_jobs', 'lease_id', 'heartbeat.lease_id', 'for update skip locked')} live`,
  isSame: 'live.ctid = decided.place',
};
const waitsForLocked = {
  locking: `(
    select heartbeat.*, live.job_id as live_id
    from heartbeat
    cross join ${lateralByKey('live_jobs', 'lease_id', 'heartbeat.lease_id')} live
    order by live.job_id
  ) heartbeat
  join ${lateralByKey('live_jobs', 'job_id', 'heartbeat.live_id', 'for update')} live
    on live.lease_id = heartbeat.lease_id`,
  isSame: keyEquals('live.job_id', 'decided.job_id'),
};

const extendFree = extend({ ...skipsLocked, ...numbersOnly });
const extendAll = extend({ ...waitsForLocked, ...numbersOnly });
const extendFreeWithJobs = extend({ ...skipsLocked, ...withJobs });
const extendAllWithJobs = extend({ ...waitsForLocked, ...withJobs });

interface ExtendOptions {
  /** Waits for locked rows instead of passing over them. */
  wait: boolean;
  signal?: AbortSignal | undefined;
}

/** Extends the leases that are active and owned by these workers. */
export async function extendLeases(
  sql: Sql,
  heartbeats: readonly Heartbeat[],
  { wait, signal }: ExtendOptions,
): Promise<ExtendResult> {
  type Row = { now: number; numbers: string | null; results: string | null; changed_jobs: string | null };
  const [row] = await send<Row>(sql, wait ? extendAll : extendFree, heartbeats, signal);
  if (!row) throw new Error('the extension of leases returned no row');
  const results = allNotFound(heartbeats);
  const codes = integers(row.results);
  for (const [i, number] of integers(row.numbers).entries()) {
    results[number - 1] = resultOf(codes[i] as number);
  }
  const changedJobs = row.changed_jobs === null ? [] : row.changed_jobs.slice(1, -1).split(',');
  return { nowMs: row.now, results, changedJobs };
}

/**
 * The same for callers that show the leases. `shown` has the extended leases by their ids, with their jobs,
 * as the statement wrote them.
 */
export async function extendLeasesWithJobs(
  sql: Sql,
  heartbeats: readonly Heartbeat[],
  { wait, signal }: ExtendOptions,
): Promise<ExtendResult & { shown: Map<string, LeaseWithJob> }> {
  type Answer = { now: number; n: number; result: number; changed_job: string | null };
  type Row = Answer & ((JobRecord & GrantedLeaseRecord) | { job_id: null });
  const rows = await send<Row>(sql, wait ? extendAllWithJobs : extendFreeWithJobs, heartbeats, signal);
  const results = allNotFound(heartbeats);
  const shown = new Map<string, LeaseWithJob>();
  for (const row of rows) {
    results[row.n - 1] = resultOf(row.result);
    if (row.job_id === null) continue;
    const job = toJob(row);
    const lease = activeLeaseOf(row, job);
    shown.set(lease.leaseId, { lease, job });
  }
  const changedJobs = rows.flatMap(({ changed_job }) => changed_job ?? []);
  // Without a row no lease was extended, and nothing depends on the time.
  return { nowMs: rows[0]?.now ?? 0, results, changedJobs, shown };
}

function send<Row>(
  sql: Sql,
  statement: ReturnType<typeof extend>,
  heartbeats: readonly Heartbeat[],
  signal: AbortSignal | undefined,
): Promise<Row[]> {
  const params = {
    leaseIds: uuidArray(heartbeats.map(({ leaseId }) => leaseId)),
    workerIds: textArray(heartbeats.map(({ workerId }) => workerId)),
    holders: nullIfAllNull(
      heartbeats.map(({ holder }) => holder),
      numberArray,
    ),
    tokens: nullIfAllNull(
      heartbeats.map(({ token }) => token),
      textArray,
    ),
    progresses: heartbeats.every(({ progress }) => progress === null)
      ? null
      : numberArray(heartbeats.map(({ progress }) => progress)),
    messages: nullIfAllNull(
      heartbeats.map(({ message }) => message),
      textArray,
    ),
    jobIds: nullIfAllNull(
      heartbeats.map(({ jobId }) => jobId),
      textArray,
    ),
  };
  return statement.query<Row>(sql, params, signal);
}

const allNotFound = (heartbeats: readonly Heartbeat[]): Extended[] =>
  Array.from({ length: heartbeats.length }, () => notFound);

const notFound: Extended = { kind: 'not found' };

const problems: Record<number, Extended> = {
  [ended]: { kind: 'ended' },
  [wrongWorker]: { kind: 'wrong worker' },
  [wrongToken]: { kind: 'wrong token' },
  [wrongJob]: { kind: 'wrong job' },
  [wrongHolder]: { kind: 'wrong holder' },
};

const resultOf = (code: number): Extended =>
  problems[code] ?? { kind: 'extended', ttlRemainingMs: code >> 1, cancelRequested: (code & 1) === 1 };

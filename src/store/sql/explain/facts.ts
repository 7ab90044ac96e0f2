import { type Kysely, sql as raw } from 'kysely';
import {
  aheadMax,
  type EndingLease,
  type OutageSpan,
  type QueuePosition,
} from '../../../domain/explain/facts.ts';
import type { JobEvent } from '../../../domain/jobs/job.ts';
import { leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type EntitySql, type Sql, timeMs } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { Outage } from '../../schema/server-entities.ts';
import { select, type Tables } from '../../schema/tables.ts';
import { historyOf, rowsOf } from '../events/find.ts';
import { type EventRecord, toEvents } from '../events/record.ts';

/** Maximum number of events that are scanned for those of one lease. */
const scanMax = 20_000;
/** Maximum number of lanes whose heads are read for a job's position in the queue. */
const lanesMax = 1_000;
/** Maximum number of rows, those due next, that are searched for leases that end soon. */
const dueMax = 200;
/** Maximum number of outages that are read; they are few. */
const outagesMax = 1_000;

/** Gives all reads of one explanation the same snapshot. Must be the first statement of its transaction. */
export const seeOneMoment = async (sql: Sql): Promise<number> => {
  await sql.query('set transaction isolation level repeatable read, read only', []);
  const [row] = await sql.query<{ now: number }>(
    'select extract(epoch from clock_timestamp())::float8 * 1000 as now',
    [],
  );
  if (!row) throw new Error('the database did not tell the time');
  return row.now;
};

export interface EventWindow {
  first: JobEvent[];
  last: JobEvent[];
  /** Number of events between them, counted up to `scanMax` rows. */
  leftOut: number;
}

/** The first and the last events of a job, or of one of its leases, each in their order. */
export async function eventWindow(
  sql: EntitySql,
  jobId: string,
  leaseId: string | null,
  { first, last }: { first: number; last: number },
): Promise<EventWindow> {
  const read = async (order: 'asc' | 'desc', limit: number) => {
    const rows = await select(sql, (tables) =>
      tables
        .selectFrom(eventsOf(tables, jobId, leaseId, { order, limit }).as('found'))
        .selectAll()
        .orderBy('event_id', order)
        .limit(limit),
    );
    return rows as EventRecord[];
  };
  const oldest = await read('asc', first + last + 1);
  const events = oldest.flatMap(toEvents);
  if (oldest.length <= first + last) {
    if (events.length <= first + last) return { first: [], last: events, leftOut: 0 };
    return {
      first: events.slice(0, first),
      last: events.slice(-last),
      leftOut: events.length - first - last,
    };
  }
  const newest = (await read('desc', last)).reverse();
  const [count] = await select(sql, (tables) =>
    tables
      .selectFrom((eb) =>
        eb
          .selectFrom(eventsOf(tables, jobId, leaseId, null).as('all'))
          .selectAll()
          .limit(scanMax)
          .as('counted'),
      )
      .select(raw<number>`coalesce(sum(${raw.raw(eventsPerRow)}), 0)::int`.as('events')),
  );
  return {
    first: events.slice(0, first),
    last: newest.flatMap(toEvents).slice(-last),
    leftOut: Math.max(0, (count?.events ?? 0) - first - last),
  };
}

/** Events of a job, or of one of its leases: all of them, or a limited number from one end. */
function eventsOf(
  tables: Kysely<Tables>,
  jobId: string,
  leaseId: string | null,
  end: { order: 'asc' | 'desc'; limit: number } | null,
) {
  const rows = rowsOf(tables, jobId);
  if (leaseId === null)
    return historyOf(tables, jobId, end ? rows.orderBy('event_id', end.order).limit(end.limit) : rows);
  // Only a limited number of the job's events is read, the newest first: a history may be arbitrarily long.
  const recent = rows.orderBy('event_id', 'desc').limit(scanMax);
  return tables.selectFrom(recent.as('recent')).selectAll().where('lease_id', '=', leaseId);
}

/** Number of events that a row records; see `store/sql/events/record.ts`. */
const eventsPerRow = `case when release_status is null then 1 when from_state = ${stateNumber('LEASED')} then 3 else 2 end`;

const isReady = `state = ${stateNumber('QUEUED')} and check_at is null`;

/**
 * Lanes with ready jobs are found by a loose scan of the queue's index. In each lane only as many rows are
 * read as are counted: a position among a million jobs costs the same as one among ten thousand.
 */
const positionStatement = statement(
  ['jobId'],
  `
with recursive mine as materialized (
  select live.job_id, live.lane_id, live.priority, live.seq, live.check_at, lanes.requires, lanes.heavy,
    lanes.stream
  from live_jobs live join lanes on lanes.lane_id = live.lane_id
  where live.job_id = @jobId
), present (lane_id, n) as (
  (select lane_id, 1 from live_jobs where ${isReady} order by lane_id limit 1)
  union all
  select (select live_jobs.lane_id from live_jobs where ${isReady} and live_jobs.lane_id > present.lane_id
    order by live_jobs.lane_id limit 1), n + 1
  from present where present.lane_id is not null and n < ${lanesMax}
), lane as materialized (
  select lanes.lane_id from present join lanes on lanes.lane_id = present.lane_id
  where lanes.stream = (select stream from mine)
), head as materialized (
  select lane.lane_id, first.job_id, first.cost_units, first.priority, first.seq
  from lane cross join lateral (
    select job_id, cost_units, priority, seq from live_jobs
    where live_jobs.lane_id = lane.lane_id and ${isReady} order by priority, seq limit 1
  ) first
)
select mine.check_at = 'infinity' as is_parked, mine.requires, mine.heavy,
  (select count(*)::int from (
    select from live_jobs where live_jobs.lane_id = mine.lane_id and ${isReady}
      and (live_jobs.priority, live_jobs.seq) < (mine.priority, mine.seq) limit ${aheadMax + 1}
  ) counted) as ahead_in_lane,
  (select count(*)::int from (
    select from lane cross join lateral (
      select from live_jobs where live_jobs.lane_id = lane.lane_id and ${isReady}
        and (live_jobs.priority, live_jobs.seq) < (mine.priority, mine.seq) limit ${aheadMax + 1}
    ) before limit ${aheadMax + 1}
  ) counted) as ahead,
  lane_head.job_id as lane_head_id, lane_head.cost_units as lane_head_units,
  first.job_id as head_id, first.cost_units as head_units
from mine
left join head lane_head on lane_head.lane_id = mine.lane_id
left join (select * from head order by priority, seq limit 1) first on true`,
);

interface PositionRow {
  is_parked: boolean | null;
  requires: string[];
  heavy: string[];
  ahead_in_lane: number;
  ahead: number;
  lane_head_id: string | null;
  lane_head_units: number | null;
  head_id: string | null;
  head_units: number | null;
}

/** The position of a queued job; null if the job is not live. */
export async function queuePosition(sql: Sql, jobId: string): Promise<QueuePosition | null> {
  const [row] = await positionStatement.query<PositionRow>(sql, { jobId });
  if (!row) return null;
  const head = (id: string | null, units: number | null) =>
    id === null ? null : { jobId: id, costUnits: units ?? 0 };
  return {
    isParked: row.is_parked ?? false,
    requires: row.requires,
    heavy: row.heavy,
    aheadInLane: row.ahead_in_lane,
    ahead: row.ahead,
    laneHead: head(row.lane_head_id, row.lane_head_units),
    head: head(row.head_id, row.head_units),
  };
}

/**
 * The leases that expire next without a heartbeat. A lease is due for a check no later than it expires. If
 * many renewed leases are due first, one that expires before them may be missed; finding it would mean
 * reading all.
 */
export async function leasesEndingNext(sql: EntitySql, limit: number): Promise<EndingLease[]> {
  const rows = await select(sql, (tables) =>
    tables
      .selectFrom((eb) =>
        eb
          .selectFrom('live_jobs')
          .selectAll()
          .where('check_at', '<', raw<Date>`'infinity'`)
          .orderBy('check_at')
          .limit(dueMax)
          .as('due'),
      )
      .select(['lease_id', 'claimed_by', 'cost_units', 'expires_at'])
      .where('state', 'in', leasedStates.map(stateNumber))
      .orderBy('expires_at')
      .limit(limit)
      .$castTo<{ lease_id: string; claimed_by: string; cost_units: number; expires_at: string }>(),
  );
  return rows.map(({ lease_id, claimed_by, cost_units, expires_at }) => ({
    leaseId: lease_id,
    workerId: claimed_by,
    costUnits: cost_units,
    expiresAtMs: timeMs(expires_at),
  }));
}

/**
 * Outages since then, oldest first: the first `limit` among the newest thousand. Ids have the order of time.
 */
export async function outagesSince(sql: EntitySql, sinceMs: number, limit: number): Promise<OutageSpan[]> {
  const newest = await sql.em().find(Outage, {}, { orderBy: { outage_id: 'desc' }, limit: outagesMax });
  return newest
    .map(({ began_at, ended_at }) => ({ beganAtMs: timeMs(began_at), endedAtMs: timeMs(ended_at) }))
    .filter(({ endedAtMs }) => endedAtMs >= sinceMs)
    .reverse()
    .slice(0, limit);
}

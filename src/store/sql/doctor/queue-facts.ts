import { sql as raw } from 'kysely';
import {
  type QueueFacts,
  type QueueHead,
  queueCountMax,
  type SilentLease,
} from '../../../domain/doctor/facts.ts';
import { leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type EntitySql, lateralByKey, type Sql } from '../../connection/sql.ts';
import { select } from '../../schema/tables.ts';

/** Maximum number of lanes and priorities whose first jobs are read. */
const headsMax = 1_000;
/** Maximum number of rows, those due next, that are searched for silent leases. */
const dueMax = 5_000;
const silentMax = 100;

const isReady = `state = ${stateNumber('QUEUED')} and check_at is null`;

// Finds the first job of each lane and priority by a loose scan of the queue's index, from one to the next.
const heads = `
with recursive head (lane_id, priority, job_id, cost_units, since, n) as (
  (select lane_id, priority, job_id, cost_units, coalesce(ready_at, updated_at), 1 from live_jobs
    where ${isReady} order by lane_id, priority, seq limit 1)
  union all
  select next.lane_id, next.priority, next.job_id, next.cost_units, next.since, head.n + 1
  from head cross join lateral (
    select live_jobs.lane_id, live_jobs.priority, job_id, cost_units, coalesce(ready_at, updated_at) as since
    from live_jobs
    where ${isReady} and (live_jobs.lane_id, live_jobs.priority) > (head.lane_id, head.priority)
    order by live_jobs.lane_id, live_jobs.priority, live_jobs.seq limit 1
  ) next
  where head.n <= ${headsMax}
)
select head.job_id as "jobId", lanes.job_type as "jobType", lanes.addon_id as "addonId", nullif(lanes.stream, '') as stream,
  lanes.requires, lanes.heavy, head.cost_units as "costUnits",
  greatest(extract(epoch from clock_timestamp() - head.since)::float8 * 1000, 0) as "readyMs"
from head cross join ${lateralByKey('lanes', 'lane_id', 'head.lane_id')} lanes
order by head.n`;

/** The first ready job of each lane and priority, up to `headsMax`. */
export async function readHeads(
  sql: Sql,
  signal?: AbortSignal,
): Promise<Pick<QueueFacts, 'heads' | 'headsCut'>> {
  const rows = await sql.query<QueueHead>(heads, [], signal);
  return { heads: rows.slice(0, headsMax), headsCut: rows.length > headsMax };
}

/** Parked jobs, which cost more than the total. */
export async function readTooCostly(
  sql: EntitySql,
  signal?: AbortSignal,
): Promise<Pick<QueueFacts, 'tooCostly' | 'firstTooCostly'>> {
  const [row] = await select(
    sql,
    (tables) =>
      tables
        .selectFrom((eb) =>
          eb
            .selectFrom('live_jobs')
            .select(['job_id', 'cost_units'])
            .where('check_at', '=', raw<Date>`'infinity'`)
            .where('state', '=', stateNumber('QUEUED'))
            .limit(queueCountMax + 1)
            .as('aside'),
        )
        .select([
          raw<number>`count(*)::int`.as('jobs'),
          raw<string | null>`(array_agg(job_id))[1]`.as('job_id'),
          raw<number | null>`(array_agg(cost_units))[1]`.as('cost_units'),
        ]),
    signal,
  );
  const first = row?.job_id ? { jobId: row.job_id, costUnits: row.cost_units ?? 0 } : null;
  return { tooCostly: row?.jobs ?? 0, firstTooCostly: first };
}

/** Dead letters by stream, counted up to a bound. */
export async function readDeadLetters(
  sql: EntitySql,
  signal?: AbortSignal,
): Promise<{ stream: string; jobs: number }[]> {
  return select(
    sql,
    (tables) =>
      tables
        .selectFrom((eb) =>
          eb
            .selectFrom('job_outcomes')
            .select('dead_stream')
            .where('dead_stream', 'is not', null)
            .orderBy('dead_stream')
            .limit(queueCountMax + 1)
            .as('dead'),
        )
        .select((eb) => [
          eb.ref('dead_stream').$notNull().as('stream'),
          raw<number>`count(*)::int`.as('jobs'),
        ])
        .groupBy('dead_stream')
        .orderBy('dead_stream'),
    signal,
  );
}

/**
 * Leases without a heartbeat for three quarters of their TTL, those that expire first in front. A lease is
 * due for a check no later than it expires. If more leases than `dueMax` are due earlier, a silent one is
 * missed.
 */
export async function readSilentLeases(sql: EntitySql, signal?: AbortSignal): Promise<SilentLease[]> {
  return select(
    sql,
    (tables) =>
      tables
        .selectFrom((eb) =>
          eb
            .selectFrom('live_jobs')
            .selectAll()
            .select(({ fn, ref }) => fn.coalesce(ref('last_heartbeat_at'), ref('started_at')).as('heard_at'))
            .where('check_at', '<', raw<Date>`'infinity'`)
            .orderBy('check_at')
            .limit(dueMax)
            .as('due'),
        )
        .select([
          'lease_id as leaseId',
          'job_id as jobId',
          'claimed_by as workerId',
          'lease_ttl_s as ttlS',
          raw<number>`extract(epoch from clock_timestamp() - heard_at)::float8 * 1000`.as('silentMs'),
        ])
        .where('state', 'in', leasedStates.map(stateNumber))
        .where(raw<boolean>`clock_timestamp() - heard_at > 0.75 * lease_ttl_s * interval '1 second'`)
        .orderBy('expires_at')
        .limit(silentMax)
        .$castTo<SilentLease>(),
    signal,
  );
}

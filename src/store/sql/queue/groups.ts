import { sql as raw } from 'kysely';
import { priorities } from '../../../domain/jobs/job.ts';
import { claimedStates, leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { askingWorkersMax, type QueueGroup, queueCounts } from '../../../domain/queue/queue-group.ts';
import type { WorkerRequest } from '../../../domain/workers/worker.ts';
import { type EntitySql, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { select } from '../../schema/tables.ts';

const queued = stateNumber('QUEUED');
const isReady = `live_jobs.state = ${queued} and live_jobs.check_at is null`;
const since = 'coalesce(ready_at, updated_at) as since';
const dueColumns = `lane_id, state, check_at, job_id, priority, cost_units, ${since}`;
const count = (states: readonly string[]) => `(count(*) filter (where state in (${states.join(', ')})))::int`;

/**
 * Lanes with ready jobs are found by a loose scan of the queue's index. Lanes with delayed, claimed or
 * running jobs are found among the rows that are due next. Of each index only as many rows are read as are
 * counted, so the page costs the same beside a million jobs or lanes. A parked job represents its lane if no
 * job of it is ready.
 */
const page = statement(
  ['afterLane', 'limit'],
  `
with recursive present (lane_id, n) as (
  (select lane_id, 1 from live_jobs where ${isReady} and lane_id > @afterLane::int order by lane_id limit 1)
  union all
  select (select live_jobs.lane_id from live_jobs where ${isReady} and live_jobs.lane_id > present.lane_id
    order by live_jobs.lane_id limit 1), n + 1
  from present where present.lane_id is not null and n < @limit::int
), due as materialized (
  (select ${dueColumns} from live_jobs where check_at < 'infinity' order by check_at limit ${queueCounts.due})
  union all
  (select ${dueColumns} from live_jobs where check_at = 'infinity' limit ${queueCounts.parked})
), other as materialized (
  select lane_id, ${count([`${queued}`])} as delayed,
    ${count(claimedStates.map((state) => `${stateNumber(state)}`))} as claimed,
    ${count(leasedStates.map((state) => `${stateNumber(state)}`))} as running,
    min(check_at) filter (where state = ${queued} and check_at < 'infinity') as next_ready_at
  from due group by lane_id
), aside as materialized (
  select distinct on (lane_id) lane_id, job_id, priority, cost_units, since from due
  where state = ${queued} and check_at = 'infinity' order by lane_id, since
), page as materialized (
  select lane_id from (
    select lane_id from present where lane_id is not null
    union
    select lane_id from other where lane_id > @afterLane::int
  ) known order by lane_id limit @limit::int
)
select page.lane_id, nullif(lanes.stream, '') as stream, lanes.addon_id, lanes.job_type, lanes.requires,
  lanes.heavy, lanes.is_unique, ready.jobs as ready, coalesce(other.delayed, 0) as delayed,
    coalesce(other.claimed, 0)
    as claimed,
  coalesce(other.running, 0) as running, other.next_ready_at,
  ${['job_id', 'priority', 'cost_units', 'since']
    .map(
      (name) => `coalesce(oldest.${name}, aside.${name})
    as ${name}`,
    )
    .join(', ')},
  (select count(*) from due) >= ${queueCounts.due} as is_cut
from page cross join ${lateralByKey('lanes', 'lane_id', 'page.lane_id')} lanes
left join other on other.lane_id = page.lane_id
cross join lateral (
  select count(*)::int as jobs from (
    select from live_jobs where ${isReady} and live_jobs.lane_id = page.lane_id limit ${queueCounts.ready}
  ) counted
) ready
left join lateral (
  select first.* from generate_series(0, ${priorities.length - 1}) as level cross join lateral (
    select job_id, priority, cost_units, ${since} from live_jobs
    where ${isReady} and live_jobs.lane_id = page.lane_id and live_jobs.priority = level::smallint
    order by seq limit 1
  ) first
  order by first.since limit 1
) oldest on true
left join aside on aside.lane_id = page.lane_id and oldest.job_id is null
order by page.lane_id`,
);

interface Row {
  lane_id: number;
  stream: string | null;
  addon_id: string;
  job_type: string;
  requires: string[];
  heavy: string[];
  is_unique: boolean;
  ready: number;
  delayed: number;
  claimed: number;
  running: number;
  next_ready_at: string | null;
  job_id: string | null;
  priority: number | null;
  cost_units: number | null;
  since: string | null;
  is_cut: boolean;
}

export interface GroupPage {
  groups: (QueueGroup & { laneId: number })[];
  /** More jobs are delayed, claimed or running than are counted. */
  isCut: boolean;
}

/**
 * The groups after a lane, without the workers that request them and without the causes why their oldest jobs
 * wait.
 */
export async function readQueueGroups(
  sql: Sql,
  afterLane: number,
  limit: number,
  signal?: AbortSignal,
): Promise<GroupPage> {
  const rows = await page.query<Row>(sql, { afterLane, limit }, signal);
  return { groups: rows.map(toGroup), isCut: rows.some(({ is_cut }) => is_cut) };
}

const toGroup = (row: Row): QueueGroup & { laneId: number } => ({
  laneId: row.lane_id,
  stream: row.stream,
  addonId: row.addon_id,
  jobType: row.job_type,
  requires: row.requires,
  heavy: row.heavy,
  isUnique: row.is_unique,
  ready: row.ready,
  delayed: row.delayed,
  claimed: row.claimed,
  running: row.running,
  nextReadyAtMs: timeMs(row.next_ready_at),
  asking: null,
  oldest:
    row.job_id === null || row.since === null
      ? null
      : {
          jobId: row.job_id,
          priority: priorities[row.priority ?? 0] ?? 'NORMAL',
          costUnits: row.cost_units ?? 0,
          readySinceMs: timeMs(row.since),
          cause: null,
        },
});

export interface AskingWorker {
  workerId: string;
  asks: WorkerRequest[];
}

/** The requests of each known worker; null if there are more than can be compared with jobs. */
export async function readAskingWorkers(
  sql: EntitySql,
  signal?: AbortSignal,
): Promise<AskingWorker[] | null> {
  const rows = await select(
    sql,
    (tables) =>
      tables
        .selectFrom('workers')
        .select(['worker_id', 'asks', 'asks_cut'])
        .where('expires_at', '>', raw<Date>`clock_timestamp()`)
        .limit(askingWorkersMax + 1),
    signal,
  );
  if (rows.length > askingWorkersMax) return null;
  return rows.map(({ worker_id, asks, asks_cut }) => ({
    workerId: worker_id,
    // A worker with more request classes than are stored may request any job.
    asks: asks_cut ? asks.map((ask) => ({ ...ask, isCut: true })) : asks,
  }));
}

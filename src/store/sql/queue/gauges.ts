import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { aggregationMark } from '../stats/aggregate.ts';

/** Figures of the queue, read without counting its jobs. */
export interface QueueGauges {
  /** All queued jobs, delayed ones included. */
  queued: number;
  /** Jobs that are ready, up to `readyMax`. */
  ready: number;
  /** The longest waiting time among the heads of all lanes and priorities; null if there are none. */
  oldestMs: number | null;
  leases: number;
  /** Dead letters, up to `readyMax`. */
  deadLetters: number;
  claims: number;
  total: number;
  busyRating: number;
  used: number;
  /** The units of the claimed jobs. */
  reserved: number;
}

/**
 * Ready jobs are in no total, because time makes them ready and not a transaction; this many are counted
 * quickly.
 */
export const readyMax = 1_000;
/** Maximum number of lanes and priorities whose heads are read. */
const headsMax = 1_000;

const isReady = `state = ${stateNumber('QUEUED')} and check_at is null`;

const gauges = ['queued', 'running', 'claimed', 'reserved'] as const;

// Gauges are the totals plus the tallies that are not aggregated yet, in one snapshot. Heads are found by a
// loose scan of the queue's index from one lane and priority to the next, no further than needed.
const figures = preparedStatement(
  ['totalUnlessSet'],
  `
with recursive ${aggregationMark}, head (lane_id, priority, updated_at) as (
  (select lane_id, priority, updated_at from live_jobs where ${isReady} order by lane_id, priority, seq
    limit 1)
  union all
  select next.lane_id, next.priority, next.updated_at from head cross join lateral (
    select live_jobs.lane_id, live_jobs.priority, live_jobs.updated_at from live_jobs
    where ${isReady} and (live_jobs.lane_id, live_jobs.priority) > (head.lane_id, head.priority)
    order by live_jobs.lane_id, live_jobs.priority, live_jobs.seq limit 1
  ) next
), oldest as (
  select min(updated_at) as since from (select updated_at from head limit ${headsMax}) heads
), counted as materialized (
  select ${gauges.map((name) => `coalesce(sum(${name}), 0) as ${name}`).join(', ')} from (
    select ${gauges.join(', ')} from stat_totals where addon_id = ''
    union all
    select ${gauges.join(', ')} from stat_tallies where txid >= (select txid from mark)
  ) part
)
select
  (select count(*)::int from (select 1 from live_jobs where ${isReady} limit ${readyMax}) ready) as ready,
  (select extract(epoch from clock_timestamp() - since)::float8 * 1000 from oldest) as "oldestMs",
  (select count(*)::int from (select 1 from job_outcomes where dead_stream is not null
    limit ${readyMax}) dead)
    as "deadLetters",
  queued::float8, running::float8 as leases, claimed::float8 as claims, reserved::float8,
  coalesce(capacity.total, @totalUnlessSet::int) as total, capacity.busy_rating as "busyRating",
    capacity.used::float8
from counted cross join capacity where capacity.capacity_id = 1`,
);

export async function readQueueGauges(sql: Sql, totalUnlessSet: number): Promise<QueueGauges> {
  const [row] = await figures.query<QueueGauges>(sql, { totalUnlessSet });
  if (!row) throw new Error('the row of the capacity is gone');
  return row;
}

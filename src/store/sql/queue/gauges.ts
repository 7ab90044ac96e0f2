import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import { prepared } from '../../connection/prepared-client.ts';
import type { Sql } from '../../connection/sql.ts';
import { aggregationMark } from '../stats/aggregate.ts';

/** How the queue stands, told without counting what is in it. */
export interface QueueGauges {
  /** All that are queued, those included that wait for their time. */
  queued: number;
  /** Those that may be taken now, up to `readyMax`. */
  ready: number;
  /** How long the one has been waiting that has waited longest at the head of its lane and priority; null without any. */
  oldestMs: number | null;
  leases: number;
  /** Jobs of streams that were given up, up to `readyMax`. */
  deadLetters: number;
  claims: number;
  total: number;
  busyRating: number;
  used: number;
  /** What the claimed jobs would take. */
  reserved: number;
}

/** Ready jobs are in no total, because time makes them ready and not a transaction; so few are counted quickly. */
export const readyMax = 1_000;
/** Lanes and priorities whose heads are looked at. */
const headsMax = 1_000;

const isReady = `state = ${stateNumber('QUEUED')} and check_at is null`;

const gauges = ['queued', 'running', 'claimed', 'reserved'] as const;

// Totals are what has been added up and the tallies that have not been, as one moment saw them. The heads are found by
// leaping through the queue's index from one lane and priority to the next, and no further than is asked for.
const figures = prepared(`
with recursive ${aggregationMark}, head (lane_id, priority, updated_at) as (
  (select lane_id, priority, updated_at from live_jobs where ${isReady} order by lane_id, priority, seq limit 1)
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
  (select count(*)::int from (select 1 from job_outcomes where dead_stream is not null limit ${readyMax}) dead)
    as "deadLetters",
  queued::float8, running::float8 as leases, claimed::float8 as claims, reserved::float8,
  coalesce(capacity.total, $1::int) as total, capacity.busy_rating as "busyRating", capacity.used::float8
from counted cross join capacity where capacity.capacity_id = 1`);

export async function readQueueGauges(sql: Sql, totalUnlessSet: number): Promise<QueueGauges> {
  const [row] = await sql.query<QueueGauges>(figures, [totalUnlessSet]);
  if (!row) throw new Error('the row of the capacity is gone');
  return row;
}

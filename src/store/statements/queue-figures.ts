import { claimedStates, leasedStates, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';

/** What can be told of the queue without counting it to its end. */
export interface QueueFigures {
  /** Jobs that may be taken now, up to `countMax`. */
  ready: number;
  /** How long the one has been waiting that has waited longest at the head of its lane and priority; null without any. */
  oldestMs: number | null;
  /** Active leases and claims, each up to `countMax`. */
  leases: number;
  claims: number;
  total: number;
  busyRating: number;
  used: number;
  /** What the claimed jobs that were counted would take. */
  reserved: number;
}

/** Counting further would cost more than is worth knowing. */
export const countMax = 10_000;
/** Lanes and priorities whose heads are looked at. */
const headsMax = 1_000;

const isReady = `state = ${stateNumber('QUEUED')} and check_at is null`;
const among = (states: readonly (typeof leasedStates)[number][]) =>
  `state in (${states.map(stateNumber).join(', ')}) and state <> ${stateNumber('QUEUED')}`;

// Each part reads the front of an index that holds nothing but what it counts, or little else. The heads are found by
// leaping through the queue's index from one lane and priority to the next, and no further than is asked for.
const figures = hot(`
with recursive head (lane_id, priority, updated_at) as (
  (select lane_id, priority, updated_at from live_jobs where ${isReady} order by lane_id, priority, seq limit 1)
  union all
  select next.lane_id, next.priority, next.updated_at from head cross join lateral (
    select live_jobs.lane_id, live_jobs.priority, live_jobs.updated_at from live_jobs
    where ${isReady} and (live_jobs.lane_id, live_jobs.priority) > (head.lane_id, head.priority)
    order by live_jobs.lane_id, live_jobs.priority, live_jobs.seq limit 1
  ) next
), oldest as (
  select min(updated_at) as since from (select updated_at from head limit ${headsMax}) heads
), claims as (
  select count(*)::int as claims, coalesce(sum(cost_units), 0) as reserved from (
    select cost_units from live_jobs where ${among(claimedStates)} limit ${countMax}
  ) claimed
)
select
  (select count(*)::int from (select 1 from live_jobs where ${isReady} limit ${countMax}) ready) as ready,
  (select extract(epoch from clock_timestamp() - since)::float8 * 1000 from oldest) as "oldestMs",
  (select count(*)::int from (select 1 from live_jobs where ${among(leasedStates)} limit ${countMax}) leased) as leases,
  claims.claims, claims.reserved,
  coalesce(capacity.total, $1::int) as total, capacity.busy_rating as "busyRating", capacity.used
from claims cross join capacity where capacity.capacity_id = 1`);

export async function queueFigures(sql: Sql, totalUnlessSet: number): Promise<QueueFigures> {
  type Row = Omit<QueueFigures, 'used' | 'reserved'> & { used: string; reserved: string };
  const [row] = await sql.query<Row>(figures, [totalUnlessSet]);
  if (!row) throw new Error('the row of the capacity is gone');
  return { ...row, used: Number(row.used), reserved: Number(row.reserved) };
}

/**
 * The removal of idle lanes: lanes without an unfinished job.
 *
 * A lane must never be removed while a job is being put into it, because no claim would find that job. Three
 * rules guarantee that:
 *
 * - Every transaction that puts a job into a lane (`submitJobs`, `keepLanesOf`) holds its row with `for key
 *   share` until it commits. If the lane is removed, a transaction creates it again with a new id, and holds
 *   it until it commits (`keepLanes`).
 * - The sweep holds the row with `for update`, which excludes the other locks. It skips rows that are locked
 *   already, and cannot see uncommitted rows.
 * - A statement that begins after that lock decides whether a lane is idle. Its snapshot has all jobs that
 *   were committed before, and no further ones can come. A snapshot from before the lock could miss a job.
 *
 * Unfinished jobs are those that are ready, which the queue's index finds by lane, and those that are
 * delayed, claimed or leased, which all have a `check_at`. Tallies that are not aggregated yet name their
 * lane, and keep it.
 */

import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { TransactionSql } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { numberArray } from '../array-params.ts';
import { moveWalk, type SweptSlice, sweepSlice, takeWalk } from './sweep-walks.ts';

// Not `exists`: the planner would read the whole queue ahead when statistics call it empty.
const hasReady = (lane: string): string => `coalesce((
    select true from live_jobs
    where live_jobs.lane_id = ${lane} and state = ${stateNumber('QUEUED')} and check_at is null limit 1
  ), false)`;

const findWithoutReady = statement(
  ['afterLane', 'limit'],
  `
with slice as materialized (
  select lane_id from lanes where lane_id > @afterLane::int order by lane_id limit @limit::int
)
select lane_id, ${hasReady('slice.lane_id')} as "hasReady" from slice`,
);

const lock = statement(
  ['laneIds'],
  `select lane_id from lanes where lane_id = any (@laneIds::int[]) order by lane_id for update skip locked`,
);

const remove = statement(
  ['laneIds'],
  `
with busy as materialized (
  select lane_id from live_jobs where check_at is not null and lane_id = any (@laneIds::int[])
  union
  select lane_id from stat_tallies where lane_id = any (@laneIds::int[])
), deleted as (
  delete from lanes where lane_id = any (@laneIds::int[]) and not ${hasReady('lanes.lane_id')}
    and not exists (select from busy where busy.lane_id = lanes.lane_id)
  returning stream
), listed as (
  insert into idle_streams (stream, idle_since)
  select distinct stream, clock_timestamp() from deleted where stream <> ''
  on conflict (stream) do update set idle_since = excluded.idle_since
)
select count(*)::int as removed from deleted`,
);

/**
 * Checks the next lanes and removes idle ones. Returns undefined if the walk rests or another server has it.
 * Must run in a transaction of its own, which holds locks on the lanes that it may remove.
 */
export async function sweepLanes(sql: TransactionSql, restMs: number): Promise<SweptSlice | undefined> {
  const walk = await takeWalk(sql, 'lanes');
  if (!walk) return undefined;
  const from = Number(walk.mark ?? 0);
  type Found = { lane_id: number; hasReady: boolean };
  const found = await findWithoutReady.query<Found>(sql, { afterLane: from, limit: sweepSlice });
  const idle = found.flatMap(({ lane_id, hasReady }) => (hasReady ? [] : lane_id));
  const removed = idle.length > 0 ? await removeIdle(sql, idle) : 0;
  const isOver = found.length < sweepSlice;
  const last = found.reduce((max, { lane_id }) => Math.max(max, lane_id), from);
  await moveWalk(sql, 'lanes', isOver ? null : `${last}`, restMs);
  return { isOver, removed };
}

async function removeIdle(sql: TransactionSql, laneIds: readonly number[]): Promise<number> {
  const locked = await lock.query<{ lane_id: number }>(sql, { laneIds: numberArray(laneIds) });
  if (locked.length === 0) return 0;
  const [row] = await remove.query<{ removed: number }>(sql, {
    laneIds: numberArray(locked.map(({ lane_id }) => lane_id)),
  });
  return row?.removed ?? 0;
}

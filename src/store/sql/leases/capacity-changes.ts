import { raw } from '@mikro-orm/core';
import type { CapacityChange, CapacitySetting } from '../../../domain/leases/capacity.ts';
import { type EntitySql, timeMs } from '../../connection/sql.ts';
import { CapacityChangeRow } from '../../schema/lease-entities.ts';
import { lockCapacity, setCapacity } from './capacity.ts';

export interface CapacityWish {
  total: number | null;
  busyRating: number | null;
  requestedBy: string;
  reason: string | null;
}

/**
 * Changes the values that are not null, and records the actor and both values. Returns undefined if nothing
 * changed. Must run in a transaction: the capacity row stays locked until its end.
 */
export async function changeCapacity(
  sql: EntitySql,
  { total, busyRating, requestedBy, reason }: CapacityWish,
  totalUnlessSet: number,
): Promise<Omit<CapacityChange, 'changeId'> | undefined> {
  const locked = await lockCapacity(sql, totalUnlessSet);
  const before: CapacitySetting = { total: locked.total, busyRating: locked.busyRating };
  const after: CapacitySetting = {
    total: total ?? before.total,
    busyRating: busyRating ?? before.busyRating,
  };
  // Stores a total that was not stored before, also if its value is the same.
  await setCapacity(sql, total, busyRating);
  if (after.total === before.total && after.busyRating === before.busyRating) return undefined;
  const [clock] = await sql.query<{ now: string }>('select clock_timestamp() as now', []);
  if (!clock) throw new Error('the database did not tell the time');
  const atMs = timeMs(clock.now);
  await sql.em().insert(CapacityChangeRow, {
    at: new Date(atMs),
    requested_by: requestedBy,
    reason,
    total_before: before.total,
    total_after: after.total,
    busy_rating_before: before.busyRating,
    busy_rating_after: after.busyRating,
  });
  return { atMs, requestedBy, reason, before, after };
}

/** Changes of the capacity before the cursor, the newest first. */
export async function listCapacityChanges(
  sql: EntitySql,
  { cursor, limit }: { cursor: string | null; limit: number },
  signal?: AbortSignal,
): Promise<CapacityChange[]> {
  const older = cursor === null ? {} : { change_id: { $lt: cursor } };
  const rows = await sql.em(signal).find(CapacityChangeRow, older, { orderBy: { change_id: 'desc' }, limit });
  return rows.map((row) => ({
    changeId: row.change_id,
    atMs: timeMs(row.at),
    requestedBy: row.requested_by,
    reason: row.reason ?? null,
    before: { total: row.total_before, busyRating: row.busy_rating_before },
    after: { total: row.total_after, busyRating: row.busy_rating_after },
  }));
}

/** Removes changes that are older than `days` by the database's clock. */
export const pruneCapacityChanges = (sql: EntitySql, days: number): Promise<number> =>
  sql.em().nativeDelete(CapacityChangeRow, {
    at: { $lt: raw("clock_timestamp() - ? * interval '1 day'", [days]) },
  });

import { type Kysely, sql as raw } from 'kysely';
import { claimedStates, leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { EntitySql, Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { CapacityRow as CapacityEntity } from '../../schema/lease-entities.ts';
import { select, type Tables } from '../../schema/tables.ts';

/** The capacity row. Every transaction that takes or returns capacity locks it, after all rows of jobs. */
export interface CapacityNow {
  total: number;
  busyRating: number;
  used: number;
}

export interface CapacityRow {
  total: number;
  busy_rating: number;
  used: string;
}

/** The columns of the capacity; the parameter is the total that applies unless one is stored. */
export const capacityColumns = 'coalesce(total, @totalUnlessSet::int) as total, busy_rating, used';
const readRow = (how: string) =>
  preparedStatement(
    ['totalUnlessSet'],
    `select ${capacityColumns} from capacity where capacity_id = 1 ${how}`,
  );
const lock = readRow('for update');
const share = readRow('for share');
const read = readRow('');

/** Locks the capacity until the transaction ends. Its holder must not wait for any other row. */
export const lockCapacity = (sql: Sql, totalUnlessSet: number, signal?: AbortSignal): Promise<CapacityNow> =>
  one(lock.query<CapacityRow>(sql, { totalUnlessSet }, signal));

const lockAndReturn = preparedStatement(
  ['units', 'totalUnlessSet'],
  `update capacity set used = used - @units::bigint where capacity_id = 1 returning ${capacityColumns}`,
);

/** The same, and returns units to the capacity. */
export const lockCapacityWith = (
  sql: Sql,
  totalUnlessSet: number,
  units: number,
  signal?: AbortSignal,
): Promise<CapacityNow> =>
  units === 0
    ? lockCapacity(sql, totalUnlessSet, signal)
    : one(lockAndReturn.query<CapacityRow>(sql, { units, totalUnlessSet }, signal));

/** Prevents changes of the capacity until the transaction ends. */
export const shareCapacity = (sql: Sql, totalUnlessSet: number): Promise<CapacityNow> =>
  one(share.query<CapacityRow>(sql, { totalUnlessSet }));

export const readCapacity = (sql: Sql, totalUnlessSet: number, signal?: AbortSignal): Promise<CapacityNow> =>
  one(read.query<CapacityRow>(sql, { totalUnlessSet }, signal));

const one = async (rows: Promise<CapacityRow[]>): Promise<CapacityNow> => toCapacity(await rows);

export function toCapacity([row]: readonly CapacityRow[]): CapacityNow {
  if (!row) throw new Error('the row of the capacity is gone');
  return { total: row.total, busyRating: row.busy_rating, used: Number(row.used) };
}

const change = preparedStatement(
  ['units'],
  'update capacity set used = used + @units::bigint where capacity_id = 1',
);

/** Takes units, or returns them if the number is negative. */
export async function takeUnits(sql: Sql, units: number): Promise<void> {
  if (units !== 0) await change.query(sql, { units });
}

/** Changes the values that are not null. */
export async function setCapacity(
  sql: EntitySql,
  total: number | null,
  busyRating: number | null,
): Promise<void> {
  const changed = {
    ...(total === null ? {} : { total }),
    ...(busyRating === null ? {} : { busy_rating: busyRating }),
  };
  if (Object.keys(changed).length > 0)
    await sql.em().nativeUpdate(CapacityEntity, { capacity_id: 1 }, changed);
}

/** The current capacity, for answers only. Grants lock the row instead. */
export async function findCapacity(
  sql: EntitySql,
  totalUnlessSet: number,
  signal?: AbortSignal,
): Promise<CapacityNow> {
  const row = await sql.em(signal).findOne(CapacityEntity, { capacity_id: 1 });
  if (!row) throw new Error('the row of the capacity is gone');
  return { total: row.total ?? totalUnlessSet, busyRating: row.busy_rating, used: Number(row.used) };
}

const unitsOf = (tables: Kysely<Tables>, states: readonly number[]) =>
  tables
    .selectFrom('live_jobs')
    .select(raw<string>`coalesce(sum(cost_units), 0)`.as('units'))
    .where('state', 'in', states)
    // Lets the planner use the index of jobs by worker.
    .where('state', '<>', stateNumber('QUEUED'));

/** The units of jobs that are claimed and not leased yet. */
export async function reservedNow(sql: EntitySql, signal?: AbortSignal): Promise<number> {
  const [row] = await select(sql, (tables) => unitsOf(tables, claimedStates.map(stateNumber)), signal);
  return Number(row?.units ?? 0);
}

export interface Audit {
  used: number;
  leased: number;
}

/** The used units on record, and those that active leases really take, in one snapshot. */
export async function auditCapacity(sql: EntitySql): Promise<Audit> {
  const [row] = await select(sql, (tables) =>
    tables
      .selectFrom('capacity')
      .select('used')
      .select(unitsOf(tables, leasedStates.map(stateNumber)).as('leased'))
      .where('capacity_id', '=', 1),
  );
  if (!row) throw new Error('the row of the capacity is gone');
  return { used: Number(row.used), leased: Number(row.leased) };
}

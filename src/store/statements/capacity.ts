import { claimedStates, leasedStates, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';

/** The one row that everything that takes or returns capacity has to lock, after all rows of jobs. */
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

/** What there is to know of it; a parameter says how much there is unless it was set. */
export const capacityColumns = (totalUnlessSet: string): string =>
  `coalesce(total, ${totalUnlessSet}::int) as total, busy_rating, used`;
const columns = capacityColumns('$1');
const lock = hot(`select ${columns} from capacity where capacity_id = 1 for update`);
const share = hot(`select ${columns} from capacity where capacity_id = 1 for share`);
const read = hot(`select ${columns} from capacity where capacity_id = 1`);

/** Locks the capacity until the transaction ends. Whoever has it must not wait for any other row. */
export const lockCapacity = (sql: Sql, totalUnlessSet: number, signal?: AbortSignal): Promise<CapacityNow> =>
  one(sql.query<CapacityRow>(lock, [totalUnlessSet], signal));

const lockAndReturn = hot(
  `update capacity set used = used - $2::bigint where capacity_id = 1 returning ${columns}`,
);

/** The same, with units that come free. */
export const lockCapacityWith = (
  sql: Sql,
  totalUnlessSet: number,
  units: number,
  signal?: AbortSignal,
): Promise<CapacityNow> =>
  units === 0
    ? lockCapacity(sql, totalUnlessSet, signal)
    : one(sql.query<CapacityRow>(lockAndReturn, [totalUnlessSet, units], signal));

/** Sees to it that nobody changes the capacity until the transaction ends. */
export const shareCapacity = (sql: Sql, totalUnlessSet: number): Promise<CapacityNow> =>
  one(sql.query<CapacityRow>(share, [totalUnlessSet]));

export const readCapacity = (sql: Sql, totalUnlessSet: number, signal?: AbortSignal): Promise<CapacityNow> =>
  one(sql.query<CapacityRow>(read, [totalUnlessSet], signal));

const one = async (rows: Promise<CapacityRow[]>): Promise<CapacityNow> => toCapacity(await rows);

export function toCapacity([row]: readonly CapacityRow[]): CapacityNow {
  if (!row) throw new Error('the row of the capacity is gone');
  return { total: row.total, busyRating: row.busy_rating, used: Number(row.used) };
}

const sumOf = (states: readonly number[]) =>
  `(select coalesce(sum(cost_units), 0) from live_jobs where state = any ('{${states.join(',')}}'::smallint[])
    and state <> ${stateNumber('QUEUED')})`;
const reservedUnits = sumOf(claimedStates.map(stateNumber));
const leasedUnits = sumOf(leasedStates.map(stateNumber));

/** What the jobs would take that are claimed and not leased yet. */
export async function reservedNow(sql: Sql, signal?: AbortSignal): Promise<number> {
  const [row] = await sql.query<{ units: string }>(`select ${reservedUnits} as units`, [], signal);
  return Number(row?.units ?? 0);
}

const change = hot('update capacity set used = used + $1::bigint where capacity_id = 1');

/** Takes units, or returns them where the number is negative. */
export async function takeUnits(sql: Sql, units: number): Promise<void> {
  if (units !== 0) await sql.query(change, [units]);
}

/** Changes what is not null. */
export async function setCapacity(sql: Sql, total: number | null, busyRating: number | null): Promise<void> {
  await sql.query(
    `update capacity set total = coalesce($1::int, total), busy_rating = coalesce($2::smallint, busy_rating)
    where capacity_id = 1`,
    [total, busyRating],
  );
}

export interface Audit {
  used: number;
  leased: number;
}

/** What is counted as used, and what the active leases really take, as one snapshot sees them. */
export async function auditCapacity(sql: Sql): Promise<Audit> {
  const [row] = await sql.query<{ used: string; leased: string }>(
    `select used, ${leasedUnits} as leased from capacity where capacity_id = 1`,
    [],
  );
  if (!row) throw new Error('the row of the capacity is gone');
  return { used: Number(row.used), leased: Number(row.leased) };
}

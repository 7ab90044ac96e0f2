import type { Sql } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import type { Database } from '../../database.ts';

/**
 * The partitions of `job_events`, one for each day in UTC. Old events go with their partition, and no row is
 * ever deleted.
 *
 * Nothing here blocks transactions that read or write events. A partition is created separately and then
 * attached, and detached before it is dropped. Only other changes of partitions wait for the locks of these
 * steps. That is also why there is no default partition, which both steps would have to lock.
 *
 * The name of a partition says what it holds: `job_events_d20260131` that day, and `job_events_to_20260131`
 * all days before it, which is the table that existed when the history was partitioned.
 */

/**
 * Any numbers that nothing else here locks, as long as every version of the server uses the same ones. There
 * are two, because detaching may wait for long, and a transaction that lacks a partition cannot.
 */
const createLock = 7_160_524;
const dropLock = 7_160_525;

/** Days that are created ahead of today, and therefore how long servers may go without creating any. */
export const daysAheadMax = 8;

interface Partition {
  name: string;
  /** Its first day, in days since 1970; null if it holds everything older. */
  from: number | null;
  /** The day after its last. */
  until: number;
  attached: boolean;
  /** Its detaching was interrupted. */
  pending: boolean;
}

/** The partitions, and the current day. */
export interface EventPartitions {
  today: number;
  parts: readonly Partition[];
}

// A partition that is detached and not dropped yet is found by its name.
const find = `
select (clock_timestamp() at time zone 'UTC')::date - date '1970-01-01' as today, part.*
from (values (1)) as one (one) left join (
  select class.relname::text as name, parent.inhrelid is not null as attached,
    coalesce(parent.inhdetachpending, false) as pending,
    to_date(right(class.relname, 8), 'YYYYMMDD') - date '1970-01-01' as day
  from pg_class class left join pg_inherits parent on parent.inhrelid = class.oid
    and parent.inhparent = 'job_events'::regclass
  where class.relname ~ '^job_events_(d|to_)[0-9]{8}$' and class.relkind = 'r'
    and class.relnamespace = (select relnamespace from pg_class where oid = 'job_events'::regclass)
) part on true
order by day`;

export async function readEventPartitions(sql: Sql): Promise<EventPartitions> {
  type Row = { today: number; name: string | null; attached: boolean; pending: boolean; day: number };
  const rows = await sql.query<Row>(find, []);
  const parts = rows.flatMap(({ name, day, attached, pending }) => {
    if (name === null) return [];
    return name.startsWith('job_events_to_')
      ? { name, from: null, until: day, attached, pending }
      : { name, from: day, until: day + 1, attached, pending };
  });
  return { today: rows[0]?.today ?? 0, parts };
}

const holds = ({ from, until, attached }: Partition, day: number): boolean =>
  attached && (from === null || from <= day) && day < until;

/** The days from today on that have no partition. */
export function missingDays({ today, parts }: EventPartitions): number[] {
  const wanted = Array.from({ length: daysAheadMax + 1 }, (_, i) => today + i);
  return wanted.filter((day) => !parts.some((part) => holds(part, day)));
}

/**
 * Number of days after today for which events can be written: 0 if only for today, -1 if not even for today.
 */
export function daysAhead({ today, parts }: EventPartitions): number {
  let day = today;
  while (parts.some((part) => holds(part, day))) day++;
  return day - today - 1;
}

/** Partitions in which everything is older than `days`, the oldest first. */
export const expiredPartitions = ({ today, parts }: EventPartitions, days: number): Partition[] =>
  parts.filter(({ until }) => until <= today - days);

const dateOf = (day: number): string => new Date(day * 86_400_000).toISOString().slice(0, 10);

const waitForLock = statement(['lockId'], 'select pg_advisory_xact_lock(@lockId)');

/** Creates the missing partitions from today on, and returns their number. Concurrent calls wait. */
export async function createEventPartitions(database: Database): Promise<number> {
  if (missingDays(await readEventPartitions(database)).length === 0) return 0;
  return database.transaction(async (sql) => {
    await waitForLock.query(sql, { lockId: createLock });
    const days = await readEventPartitions(sql);
    const missing = missingDays(days);
    for (const day of missing) {
      const name = `job_events_d${dateOf(day).replaceAll('-', '')}`;
      // A detached partition that is not dropped yet: its day has passed, unless a clock was set back. It is
      // reused.
      if (!days.parts.some((part) => part.name === name))
        await sql.query(
          `create table ${name} (like job_events including defaults, primary key (job_id, event_id))`,
          [],
        );
      await sql.query(
        `alter table job_events attach partition ${name}
        for values from ('${dateOf(day)} 00:00:00+00') to ('${dateOf(day + 1)} 00:00:00+00')`,
        [],
      );
    }
    return missing.length;
  });
}

/**
 * Drops the oldest partition in which everything is older than `days`. Returns its name, or undefined if
 * there is none or another server is dropping. The drop waits, without blocking others, for transactions that
 * have read events and may read again, until the signal fires. The next call finishes an interrupted drop.
 */
export async function dropEventPartition(
  database: Database,
  days: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (expiredPartitions(await readEventPartitions(database), days).length === 0) return undefined;
  if (database.engine === 'embedded') return dropAtOnce(database, days);
  // Another connection does the work, because a partition cannot be detached inside a transaction. This
  // transaction only holds the lock. It has no transaction id, because watches of the file history would wait
  // for it. It has no snapshot, because the detach would wait for it; a statement with a parameter would
  // leave one behind.
  return database.transaction(async (sql) => {
    const [lock] = await sql.query<{ got: boolean }>(
      `select pg_try_advisory_xact_lock(${dropLock}) as got`,
      [],
    );
    if (!lock?.got) return undefined;
    const [part] = expiredPartitions(await readEventPartitions(database), days);
    if (!part) return undefined;
    const { name, attached, pending } = part;
    if (attached)
      await database.query(
        `alter table job_events detach partition ${name} ${pending ? 'finalize' : 'concurrently'}`,
        [],
        signal,
      );
    await database.query(`drop table ${name}`, [], signal);
    return name;
  });
}

/** Only one process uses an embedded database, and no other transaction runs during this one. */
function dropAtOnce(database: Database, days: number): Promise<string | undefined> {
  return database.transaction(async (sql) => {
    const [part] = expiredPartitions(await readEventPartitions(sql), days);
    if (!part) return undefined;
    if (part.attached) await sql.query(`alter table job_events detach partition ${part.name}`, []);
    await sql.query(`drop table ${part.name}`, []);
    return part.name;
  });
}

import type { Sql } from '../../connection/sql.ts';
import type { Database } from '../../database.ts';

/**
 * The parts of `job_events`, one for each day by UTC. What is too old goes with the table it is in, and nothing is ever
 * deleted from it. All that is done here leaves those who write and read alone: a part is made by itself and then
 * attached, and detached before it is dropped, each under a lock that only another change of the parts waits for. That is
 * also why there is no default part, which would have to be locked for both.
 *
 * The name of a part says what it holds: `job_events_d20260131` that day, and `job_events_to_20260131` all before it, which
 * is what there was when the history was divided.
 */

/**
 * Any numbers that nothing else here locks, as long as every version of the server takes the same ones. There are two,
 * because whoever detaches may have to wait for long, and whoever lacks a part to write to cannot.
 */
const createLock = 7_160_524;
const dropLock = 7_160_525;

/** Days that are made ahead of today, which is as long as servers may go on without making any. */
export const daysAheadMax = 8;

interface Partition {
  name: string;
  /** The first day that it holds, as the number of days since 1970; nothing where it holds all that is older. */
  from: number | null;
  /** The day that it ends before. */
  until: number;
  attached: boolean;
  /** It was being detached when that was broken off. */
  pending: boolean;
}

/** What there is, and which day it is. */
export interface EventPartitions {
  today: number;
  parts: readonly Partition[];
}

// A part that was detached and not dropped yet is found by its name.
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

/** The days from today on that have no part. */
export function missingDays({ today, parts }: EventPartitions): number[] {
  const wanted = Array.from({ length: daysAheadMax + 1 }, (_, i) => today + i);
  return wanted.filter((day) => !parts.some((part) => holds(part, day)));
}

/** Until how many days from now what happens can be written: 0 where that is today alone, -1 where it is not even that. */
export function daysAhead({ today, parts }: EventPartitions): number {
  let day = today;
  while (parts.some((part) => holds(part, day))) day++;
  return day - today - 1;
}

/** Parts in which everything is older than so many days, the oldest first. */
export const expiredPartitions = ({ today, parts }: EventPartitions, days: number): Partition[] =>
  parts.filter(({ until }) => until <= today - days);

const dateOf = (day: number): string => new Date(day * 86_400_000).toISOString().slice(0, 10);

/** Makes the parts that are missing from today on, and says how many. Whoever does the same at the same time waits. */
export async function createEventPartitions(database: Database): Promise<number> {
  if (missingDays(await readEventPartitions(database)).length === 0) return 0;
  return database.transaction(async (sql) => {
    await sql.query('select pg_advisory_xact_lock($1)', [createLock]);
    const days = await readEventPartitions(sql);
    const missing = missingDays(days);
    for (const day of missing) {
      const name = `job_events_d${dateOf(day).replaceAll('-', '')}`;
      // One that was detached and not dropped yet: its day is over, unless a clock was set back. It is as good as a new one.
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
 * Drops the oldest part in which everything is older than so many days. Answers with its name, or nothing where there is
 * none or another server is at it. It waits, in nobody's way, for whoever has looked at the history before and may do so
 * again: until the signal fires. What was begun then is finished the next time.
 */
export async function dropEventPartition(
  database: Database,
  days: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (expiredPartitions(await readEventPartitions(database), days).length === 0) return undefined;
  if (database.engine === 'embedded') return dropAtOnce(database, days);
  // The work is done on another connection, because a part cannot be detached within a transaction. This one only holds
  // the lock. It has no number of its own, for which those would wait who follow the history of files, and no snapshot,
  // for which the detaching itself would: a statement with a parameter would leave one behind.
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

/** Within one process nobody else is there while a transaction runs. */
function dropAtOnce(database: Database, days: number): Promise<string | undefined> {
  return database.transaction(async (sql) => {
    const [part] = expiredPartitions(await readEventPartitions(sql), days);
    if (!part) return undefined;
    if (part.attached) await sql.query(`alter table job_events detach partition ${part.name}`, []);
    await sql.query(`drop table ${part.name}`, []);
    return part.name;
  });
}

import { raw } from '@mikro-orm/core';
import { contentionStateNumber } from '../../../domain/files/contention-policy.ts';
import { ownerStateNumber } from '../../../domain/files/file-owners.ts';
import type { EntitySql, Sql } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { PruneWalk } from '../../schema/server-entities.ts';
import { held } from '../files/rows.ts';

/**
 * Deletes old rows, a slice at a time.
 *
 * Each kind of row has a *walk*: a row of `prune_walks` with its progress, and with the time when it may
 * begin again. A slice is one statement. It takes the walk unless another server has it, checks a limited
 * number of rows from its mark on, deletes the old ones, and moves the mark. Its locks end with the
 * statement, and a server that dies during it changes nothing. It waits for no lock: a locked row is skipped,
 * and the next walk finds it.
 *
 * No index exists for it, because every job would pay for one. Rows are found in the order of their primary
 * keys, and ids contain their time of creation: rows created after the limit cannot be old, and are never
 * read.
 */

/** Maximum number of rows that a slice checks, and about the maximum that it deletes. */
export const sliceRows = 500;

/** The retention setting of a walk. */
export type Retained = 'jobs' | 'files' | 'audit';

export interface Walk {
  name: string;
  retained: Retained;
  /** Time between its end and its next start. */
  restMs: number;
  slice: ReturnType<typeof walkStatement>;
}

const minuteMs = 60_000;
/** Short, because jobs may be many, and short jobs become old in quick succession. */
const jobsRestMs = 10 * minuteMs;
const restMs = 60 * minuteMs;

const nowhere = '00000000-0000-0000-0000-000000000000';

/** The smallest id that can have been made at a time; see `newId`. */
const idAt = (
  time: string,
): string => `(select (substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '${nowhere.slice(13)}')::uuid
    from (select lpad(to_hex((extract(epoch from ${time}) * 1000)::bigint), 12, '0') as hex) as digits)`;

interface Parts {
  /**
   * Further parts of the statement. `checked` has the rows of the slice from `time`, `@rowsMax` at most, with their
   * `place` in the walk, their number `n` in it, and whether they are `due`. `deleted` has the deleted rows.
   */
  parts: string;
  /** Whether the walk has ended. */
  over?: string;
}

/** `@restMs` is the time until the walk's next start. */
const walkStatement = ({ parts, over = '(select count(*) from checked) < @rowsMax::int' }: Parts) =>
  statement(
    ['walk', 'days', 'rowsMax', 'restMs'],
    `
with walk as materialized (
  select mark from prune_walks where walk = @walk::text
    and rests_until <= clock_timestamp() for update skip locked
), time as materialized (
  select mark, clock_timestamp() - @days::float8 * interval '1 day' as cutoff from walk
), ${parts}, moved as (
  update prune_walks set mark = case when over then null else last end,
    rests_until = case when over then clock_timestamp() + @restMs::float8 * interval '1 ms' else rests_until end
  from (select ${over} as over, (select place from checked order by n desc limit 1)::text as last
    from walk) place
  where walk = @walk::text
  returning over
)
select over, (select count(*)::int from checked) as checked, (select count(*)::int from deleted) as pruned
  from moved`,
  );

// A job is deleted as a whole or not at all. Its history goes with its partitions; an ended job has neither a
// live row nor a message. Leases of a job with many attempts count as rows of the slice.
const jobs = walkStatement({
  parts: `found as materialized (
    select found.*, sum(case when due then attempts else 0 end) over (order by job_id rows unbounded preceding)
      - case when due then attempts else 0 end as leases_before
    from time cross join lateral (
      select job_id, finished_at < time.cutoff as due, attempts from job_outcomes
      where job_id > coalesce(time.mark, '${nowhere}')::uuid and job_id < ${idAt('time.cutoff')}
      order by job_id limit @rowsMax::int
    ) found
  ), checked as materialized (
    select job_id as place, due, row_number() over (order by job_id) as n from found
      where leases_before < @rowsMax::int
  ), locked as materialized (
    select outcome.job_id from time, checked join job_outcomes outcome on outcome.job_id = checked.place
    where checked.due and outcome.finished_at < time.cutoff
    order by outcome.job_id for update of outcome skip locked
  ), deleted as (
    delete from job_outcomes outcome using locked where outcome.job_id = locked.job_id
      returning outcome.job_id
  ), deleted_jobs as (
    delete from jobs job using locked where job.job_id = locked.job_id
  ), deleted_leases as (
    delete from leases lease using locked where lease.job_id = locked.job_id
  )`,
  over: `(select count(*) from found) < @rowsMax::int and (select count(*) from found) = (select count(*)
    from checked)`,
});

const open = `state < ${contentionStateNumber('GRANTED')}`;

// A halt stays until it is instructed. An instruction for an owner that never returned is as old as the
// instruction.
const isOld = (contention: string) =>
  `coalesce(${contention}.closed_at, ${contention}.instructed_at) < time.cutoff`;
const contentions = walkStatement({
  parts: `checked as materialized (
    select contention_id as place, file_id, due, row_number() over (order by contention_id, file_id) as n
    from time cross join lateral (
      select contention_id, file_id, coalesce(${isOld('contention')}, false) as due
        from file_contentions contention
      where contention_id > coalesce(time.mark, '${nowhere}')::uuid and contention_id < ${idAt('time.cutoff')}
      order by contention_id, file_id limit @rowsMax::int
    ) found
  ), locked as materialized (
    select contention.contention_id, contention.file_id from time, checked join file_contentions contention
      on contention.contention_id = checked.place and contention.file_id = checked.file_id
    where checked.due and ${isOld('contention')} order by contention.contention_id,
      contention.file_id for update of contention skip locked
  ), deleted as (
    delete from file_contentions contention using locked
    where contention.contention_id = locked.contention_id and contention.file_id = locked.file_id
    returning contention.file_id
  )`,
});

// An owner with an open contention, or one that blocks another, appears in answers and stays. The other
// tables checked besides the locked row change only under the owner's lock, by transactions that make the
// owner live again.
const isOver = (owner: string) =>
  `${owner}.state <> ${ownerStateNumber('ALIVE')} and coalesce(${owner}.ended_at,
    ${owner}.last_heartbeat_at) < time.cutoff`;
const owners = walkStatement({
  parts: `checked as materialized (
    select owner_id as place, due, row_number() over (order by owner_id) as n
    from time cross join lateral (
      select owner_id, ${isOver('owner')} as due from file_owners owner
      where owner_id > coalesce(time.mark, '') order by owner_id limit @rowsMax::int
    ) found
  ), locked as materialized (
    select owner.owner_id from time, checked join file_owners owner on owner.owner_id = checked.place
    where checked.due and ${isOver('owner')}
      and not exists (select from file_leases where owner_id = owner.owner_id and state = ${held})
      and not exists (select from file_contentions where owner_id = owner.owner_id and closed_at is null)
      and owner.owner_id not in (select coalesce(blocker_now_id, blocker_id) from file_contentions
        where ${open})
    order by owner.owner_id for update of owner skip locked
  ), deleted as (
    delete from file_owners owner using locked where owner.owner_id = locked.owner_id returning owner.owner_id
  ), deleted_losses as (
    delete from file_losses loss using locked where loss.owner_id = locked.owner_id
  )`,
});

const isFree = (file: string) =>
  `${file}.state is distinct from ${held} and coalesce(${file}.ended_at < time.cutoff, true)`;
const files = walkStatement({
  parts: `checked as materialized (
    select file_id as place, due, row_number() over (order by file_id) as n
    from time cross join lateral (
      select file_id, ${isFree('file')} as due from file_leases file
      where file_id > coalesce(time.mark, '${nowhere}')::uuid order by file_id limit @rowsMax::int
    ) found
  ), locked as materialized (
    select file.file_id from time, checked join file_leases file on file.file_id = checked.place
    where checked.due and ${isFree('file')} and file.file_id not in (select file_id from file_contentions
      where ${open})
    order by file.file_id for update of file skip locked
  ), deleted as (
    delete from file_leases file using locked where file.file_id = locked.file_id returning file.file_id
  )`,
});

/** A table whose oldest rows come first in the order of an index. */
interface AgedTable {
  table: string;
  /** The columns of the index. */
  order: string;
  /** A condition on a row, named by its table; `time.cutoff` is the limit. */
  due: string;
  /** Evaluated for each row before it is deleted. */
  permit?: string;
}

/** Deletes from the head of a table up to the first row that has to stay. */
const headStatement = ({ table, order, due, permit = 'null' }: AgedTable) =>
  walkStatement({
    parts: `checked as materialized (
    select null::text as place, spot, due, row_number() over () as n
    from time cross join lateral (
      select ctid as spot, ${due} as due from ${table} order by ${order} limit @rowsMax::int
    ) head
  ), locked as materialized (
    select ${table}.ctid as spot, ${permit} as permit
    from time, checked join ${table} on ${table}.ctid = checked.spot
    where checked.due and ${due} for update of ${table} skip locked
  ), deleted as (
    delete from ${table} using locked where ${table}.ctid = locked.spot returning 1 as one
  )`,
    over: '(select count(*) from checked where due) < @rowsMax::int',
  });

// This history has no daily partitions, unlike that of jobs. A watch reads it in the order of transactions,
// which does not determine a day, so it would read every partition each time. It is also small beside that of
// jobs. A transaction that began earlier may have written later, but not by much: an old row behind a younger
// one is deleted with it.
const fileEvents = headStatement({
  table: 'file_events',
  order: 'txid, event_id',
  due: 'file_events.at < time.cutoff',
});
const outages = headStatement({
  table: 'outages',
  order: 'outage_id',
  due: 'outages.ended_at < time.cutoff and outages.next_lease_id is null',
});

// Jobs of such a stream ended before its last lane was removed, and are kept no longer than from then on.
const idleStreams = headStatement({
  table: 'idle_streams',
  order: 'idle_since',
  due: 'idle_streams.idle_since < time.cutoff',
});

// The trigger of the table refuses every other deletion. The setting ends with the transaction.
const auditEvents = headStatement({
  table: 'audit_events',
  order: 'at',
  due: 'audit_events.at < time.cutoff',
  permit: "set_config('leasehold.prunes_audit', 'on', true)",
});

export const walks: readonly Walk[] = [
  { name: 'jobs', retained: 'jobs', restMs: jobsRestMs, slice: jobs },
  { name: 'outages', retained: 'jobs', restMs, slice: outages },
  { name: 'idle streams', retained: 'jobs', restMs, slice: idleStreams },
  { name: 'contentions', retained: 'files', restMs, slice: contentions },
  { name: 'owners', retained: 'files', restMs, slice: owners },
  { name: 'files', retained: 'files', restMs, slice: files },
  { name: 'file events', retained: 'files', restMs, slice: fileEvents },
  { name: 'audit events', retained: 'audit', restMs, slice: auditEvents },
];

const namesOf = (wanted: readonly Walk[]): string[] => wanted.map(({ name }) => name);

/** A time before any other, for walks that may begin at once. */
const longAgo = new Date(0);

/** Those of these walks that may continue or begin. Mostly one read shows that there are none. */
export async function pendingWalks(sql: EntitySql, wanted: readonly Walk[]): Promise<Walk[]> {
  const resting = await sql
    .em()
    .find(PruneWalk, { walk: { $in: namesOf(wanted) }, rests_until: { $gt: raw('clock_timestamp()') } });
  const rests = new Set(resting.map(({ walk }) => walk));
  const waiting = wanted.filter(({ name }) => !rests.has(name));
  if (waiting.length === 0) return [];
  const rows = namesOf(waiting)
    .sort()
    .map((walk) => ({ walk, mark: null, rests_until: longAgo }));
  await sql.em().qb(PruneWalk).insert(rows).onConflict('walk').ignore().execute();
  return waiting;
}

/** Lets these walks begin at once. */
export async function wakeWalks(sql: EntitySql, wanted: readonly Walk[]): Promise<void> {
  await sql.em().nativeUpdate(PruneWalk, { walk: { $in: namesOf(wanted) } }, { rests_until: longAgo });
}

/** The result of a slice. */
export interface Slice {
  over: boolean;
  checked: number;
  pruned: number;
}

/** Continues a walk by one slice. Returns undefined if it rests or another server has it. */
export async function pruneSlice(sql: Sql, walk: Walk, days: number): Promise<Slice | undefined> {
  const params = { walk: walk.name, days, rowsMax: sliceRows, restMs: walk.restMs };
  return (await walk.slice.query<Slice>(sql, params))[0];
}

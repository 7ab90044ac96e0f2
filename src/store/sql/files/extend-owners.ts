import type { OwnerHeartbeat } from '../../../domain/files/file-lease.ts';
import { ownerStateNumber, ownerTtlMs } from '../../../domain/files/file-owners.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { nullIfAllNull, numberArray, textArray } from '../array-params.ts';

/**
 * Result of an owner's heartbeat. `ended` also stands for an owner of another holder. `not found`: there is
 * no such row, another transaction has locked it, or the owner was named twice.
 */
export type OwnerExtension = 'extended' | 'extended with losses' | 'ended' | 'not found';

export interface OwnerExtensions {
  nowMs: number;
  /** One for each heartbeat, in their order. */
  results: readonly OwnerExtension[];
}

/**
 * As with the leases of jobs, the statement locks the rows first, then reads the clock, and then checks each
 * row. An owner that died while the statement waited for its row stays dead. No written column is in an
 * index. The answer is one row, because decoding a row for each would take the driver longer than all the
 * rest.
 */
const extendStatement = ({ order, lock, isSame }: { order: string; lock: string; isSame: string }) =>
  preparedStatement(
    ['ownerIds', 'holders'],
    `
with heartbeat as (
  select * from unnest(@ownerIds::text[], @holders::int[]) with ordinality as heartbeat (owner_id, holder, n)
), locked as materialized (
  select heartbeat.n, owner.place, owner.owner_id, owner.expires_at, owner.has_losses,
    owner.state = ${ownerStateNumber('ALIVE')} and (owner.holder = heartbeat.holder) is not false as is_own
  from (select * from heartbeat ${order}) heartbeat
    cross join ${lateralByKey('file_owners', 'owner_id', 'heartbeat.owner_id', lock)} owner
), clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now from (select count(*) from locked) as locked_all
), extended as (
  update file_owners owner set last_heartbeat_at = now, expires_at = now + interval '${ownerTtlMs} ms'
  from locked, clock
  where ${isSame} and locked.is_own and locked.expires_at > now
  returning n, case when locked.has_losses then 2 else 1 end as result
), answered as (
  select n, result from extended
  union all
  select n, 0 from locked, clock where not locked.is_own or locked.expires_at <= now
)
select date_part('epoch', (select now from clock)) * 1000 as now, array_agg(n)::text as numbers,
  array_agg(result)::text as results
from answered`,
  );

const extendFree = extendStatement({
  order: '',
  lock: 'for update skip locked',
  isSame: 'owner.ctid = locked.place',
});
const extendAll = extendStatement({
  order: 'order by owner_id',
  lock: 'for update',
  isSame: keyEquals('owner.owner_id', 'locked.owner_id'),
});

const words: readonly OwnerExtension[] = ['ended', 'extended', 'extended with losses'];

/** Extends the owners that are alive and belong to these holders. With `wait`, it waits for locked rows. */
export async function extendOwners(
  sql: Sql,
  heartbeats: readonly OwnerHeartbeat[],
  { wait, signal }: { wait: boolean; signal?: AbortSignal | undefined },
): Promise<OwnerExtensions> {
  type Row = { now: number; numbers: string | null; results: string | null };
  const [row] = await (wait ? extendAll : extendFree).query<Row>(
    sql,
    {
      ownerIds: textArray(heartbeats.map(({ ownerId }) => ownerId)),
      holders: nullIfAllNull(
        heartbeats.map(({ holder }) => holder),
        numberArray,
      ),
    },
    signal,
  );
  if (!row) throw new Error('the database did not tell the time');
  const results = Array.from({ length: heartbeats.length }, (): OwnerExtension => 'not found');
  const found = integers(row.results);
  for (const [i, number] of integers(row.numbers).entries())
    results[number - 1] = words[found[i] as number] as OwnerExtension;
  return { nowMs: row.now, results };
}

/** `{3,1,0}` as numbers. */
const integers = (text: string | null): number[] =>
  text === null ? [] : text.slice(1, -1).split(',').map(Number);

import { counterColumns, gaugeColumns, rollupLevels } from '../../../domain/stats/series.ts';
import { keysEqual, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';

/** Any number that nothing else here locks. Its holder aggregates tallies or audits the totals. */
const advisoryLock = 7_160_526;

const tryLock = preparedStatement(['lockId'], 'select pg_try_advisory_xact_lock(@lockId::bigint) as locked');

/** Whether this transaction is the only one that aggregates tallies. Does not wait. */
export async function lockAggregation(sql: Sql): Promise<boolean> {
  const [row] = await tryLock.query<{ locked: boolean }>(sql, { lockId: advisoryLock });
  return row?.locked ?? false;
}

/**
 * The first transaction that may have tallies. All earlier ones had ended when the mark was set, and their
 * tallies are aggregated. Statements therefore never scan the dead tuples of aggregated tallies, however long
 * an old snapshot keeps them. A database that was restored into another cluster has new transaction ids; a
 * mark in the future shows that.
 */
export const aggregationMark = `mark as materialized (
  select case when folded_before > pg_snapshot_xmax(snapshot)::text::bigint then 0 else folded_before end
    as txid,
    pg_snapshot_xmin(snapshot)::text::bigint as oldest_open
  from stat_fold, pg_current_snapshot() as snapshot where fold_id = 1
)`;

const sums = [...gaugeColumns, ...counterColumns];
const listed = (of: (column: string) => string): string => sums.map(of).join(', ');
const none = listed(() => '0::bigint');

/** Merges two histograms. */
const merged = (of: 'wait' | 'run'): string => `(${of}_slots, ${of}_counts) = (
  select array_agg(slot order by slot), array_agg(n order by slot) from (
    select slot, sum(n)::bigint as n from (
      select * from unnest(existing.${of}_slots, existing.${of}_counts) as old (slot, n)
      union all
      select * from unnest(excluded.${of}_slots, excluded.${of}_counts) as new (slot, n)
    ) histograms group by slot
  ) slots
)`;

const slotsOf = (kind: number): string => `array_agg(slot order by slot) filter (where kind = ${kind}),
    array_agg(n order by slot) filter (where kind = ${kind})`;

// Tallies are summed by minute before they are spread over levels and over the total of all. Parts of the
// statement are never joined with each other: the planner takes them for small and would compare every row
// with every other.
const aggregateStatement = preparedStatement(
  ['limit', 'usable'],
  `
with ${aggregationMark}, clock as materialized (
  select clock_timestamp() as now
), taken as (
  delete from stat_tallies tally using (
    select txid, tally_id from stat_tallies where txid >= (select txid from mark) order by txid,
      tally_id limit @limit::int
  ) next
  where ${keysEqual('(tally.txid, tally.tally_id)', '(next.txid, next.tally_id)')}
  returning tally.*
), named as materialized (
  select taken.*, date_trunc('minute', at) as minute, lanes.addon_id
  from taken cross join ${lateralByKey('lanes', 'lane_id', 'taken.lane_id')} lanes
), piece as (
  select addon_id, minute, 0 as kind, 0::smallint as slot, 0 as n, ${listed((column) => column)} from named
  union all
  select addon_id, minute, 1, slot, 1, ${none} from named cross join lateral unnest(waits) as slot
  union all
  select addon_id, minute, 2, slot, 1, ${none} from named cross join lateral unnest(runs) as slot
  union all
  select '', date_trunc('minute', now), 0, 0, 0, ${none} from clock
), minutely as materialized (
  select addon_id, minute, kind, slot, sum(n) as n, ${listed((column) => `sum(${column}) as ${column}`)}
  from piece group by 1, 2, 3, 4
), spread as (
  select target as addon_id, level::smallint as level,
    date_bin(level * interval '1 minute', minute, timestamptz 'epoch') as bucket, kind, slot,
      sum(n)::bigint as n,
    ${listed((column) => `sum(${column}) as ${column}`)}
  from minutely cross join unnest(array[${rollupLevels.join(', ')}]) as level
  cross join lateral unnest(case when addon_id = '' then array[''] else array['', addon_id] end) as target
  group by 1, 2, 3, 4, 5
), bucketed as materialized (
  select addon_id, level, bucket, ${listed((column) => `sum(${column})::bigint as ${column}`)},
    ${slotsOf(1)}, ${slotsOf(2)}
  from spread group by 1, 2, 3
), rolled as (
  insert into stat_rollups as existing (addon_id, level, bucket, ${listed((column) => column)}, wait_slots,
    wait_counts, run_slots, run_counts, usable)
  select bucketed.*, case when addon_id = '' then @usable::bigint end from bucketed
  on conflict (addon_id, level, bucket) do update set ${listed((column) => `${column} = existing.${column} + excluded.${column}`)},
    ${merged('wait')}, ${merged('run')},
    usable = case when existing.bucket + existing.level * interval '1 minute' > clock_timestamp()
      then excluded.usable else existing.usable end
), totalled as (
  insert into stat_totals as existing (addon_id, ${gaugeColumns.join(', ')})
  select addon_id, ${gaugeColumns.map((column) => `sum(${column})`).join(', ')}
  from bucketed where level = ${rollupLevels[0]} group by addon_id
  on conflict (addon_id) do update
  set ${gaugeColumns.map((column) => `${column} = existing.${column} + excluded.${column}`).join(', ')}
), counted as materialized (
  select count(*)::int as tallies, max(txid) as last from taken
), marked as (
  update stat_fold set folded_before = case when tallies < @limit::int then oldest_open else least(oldest_open, last) end
  from mark, counted where fold_id = 1
)
select tallies, extract(epoch from now)::float8 * 1000 as "nowMs" from counted, clock`,
);

export interface Aggregated {
  /** Number of aggregated tallies, up to the limit. */
  tallies: number;
  nowMs: number;
}

/**
 * Adds up to `limit` tallies to the totals and to the rollups of their minutes. Also records that a server
 * was alive in this minute and how many units are usable. The caller must hold the lock.
 */
export async function aggregateTallies(sql: Sql, limit: number, usable: number): Promise<Aggregated> {
  const [row] = await aggregateStatement.query<Aggregated>(sql, { limit, usable });
  if (!row) throw new Error('the row of the fold is gone');
  return row;
}

// Coarser rollups answer all queries for earlier times.
const deleteRollups = preparedStatement(
  ['level', 'olderThanMs', 'limit'],
  `
with old as materialized (
  select addon_id, level, bucket from (
    select addon_id from stat_totals order by addon_id
  ) total cross join lateral (
    select level, bucket from stat_rollups existing
    where existing.addon_id = total.addon_id and existing.level = @level::smallint
      and existing.bucket < clock_timestamp() - @olderThanMs::float8 * interval '1 ms'
    order by existing.bucket limit @limit::int
  ) existing
  limit @limit::int
), deleted as (
  delete from stat_rollups rollup using old
  where ${keysEqual('(rollup.addon_id, rollup.level, rollup.bucket)', '(old.addon_id, old.level, old.bucket)')}
  returning 1
)
select count(*)::int as deleted from deleted`,
);

/** Removes up to `limit` rollups of one level that are older than this, and returns their number. */
export async function pruneRollups(
  sql: Sql,
  level: number,
  olderThanMs: number,
  limit: number,
): Promise<number> {
  const [row] = await deleteRollups.query<{ deleted: number }>(sql, { level, olderThanMs, limit });
  return row?.deleted ?? 0;
}

import {
  type CounterColumn,
  counterColumns,
  type GaugeColumn,
  gaugeColumns,
  type Metric,
  metrics,
  type SeriesFacts,
  type SeriesPlan,
} from '../../../domain/stats/series.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { aggregationMark } from './aggregate.ts';

/**
 * Reads figures in one snapshot: the totals and rollups, and the tallies that are not aggregated yet. Every
 * committed change is in one of them, so callers read their own writes.
 */

/** The tallies that are not aggregated yet: of one submitter, or of all if `@addonId` is empty. */
const pending = `${aggregationMark}, clock as materialized (
  select clock_timestamp() as now
), pending as materialized (
  select tally.* from stat_tallies tally cross join ${lateralByKey('lanes', 'lane_id', 'tally.lane_id')} lanes
  where tally.txid >= (select txid from mark) and (@addonId::text = '' or lanes.addon_id = @addonId)
)`;

const sumsOf = (names: readonly string[]): string =>
  names.map((name) => `coalesce(sum(${name}), 0)::bigint as ${name}`).join(', ');

/** A tally of a retry has the time of the failure, which may be more than a day ago. */
const openCounters = counterColumns
  .map(
    (name) => `coalesce(sum(${name}) filter (where at >= (select minute from first)), 0)::bigint as ${name}`,
  )
  .join(', ');

// A day is the minutes of its first hour, followed by hours.
const snapshot = preparedStatement(
  ['addonId', 'totalUnlessSet'],
  `
with ${pending}, first as materialized (
  select minute, date_bin(interval '1 hour', minute + interval '59 minutes', timestamptz 'epoch') as hour
  from (select date_trunc('minute', now - interval '24 hours') as minute from clock) day
), open as materialized (
  select ${sumsOf(gaugeColumns)}, ${openCounters} from pending
), rolled as (
  select ${counterColumns.join(', ')} from stat_rollups
  where addon_id = @addonId and level = 60 and bucket >= (select hour from first)
  union all
  select ${counterColumns.join(', ')} from stat_rollups
  where addon_id = @addonId and level = 1 and bucket >= (select minute from first)
    and bucket < (select hour from first)
), counted as materialized (
  select ${sumsOf(counterColumns)} from rolled
)
select extract(epoch from clock.now)::float8 * 1000 as now_ms,
  coalesce(capacity.total, @totalUnlessSet::int) as total,
  capacity.busy_rating, capacity.used as all_used,
  ${gaugeColumns.map((name) => `coalesce(total.${name}, 0) + open.${name} as ${name}`).join(', ')},
  ${counterColumns.map((name) => `counted.${name} + open.${name} as ${name}`).join(', ')}
from clock, open, counted, capacity left join stat_totals total on total.addon_id = @addonId
where capacity.capacity_id = 1`,
);

export interface SnapshotFacts {
  nowMs: number;
  total: number;
  busyRating: number;
  /** Units of all active leases, by the count that grants use. */
  allUsed: number;
  gauges: Record<GaugeColumn, number>;
  last24h: Record<CounterColumn, number>;
}

/** The figures of one submitter, or of all if none is named. */
export async function readSnapshot(
  sql: Sql,
  addonId: string | null,
  totalUnlessSet: number,
  signal?: AbortSignal,
): Promise<SnapshotFacts> {
  type Row = { now_ms: number; total: number; busy_rating: number; all_used: string } & Record<
    GaugeColumn | CounterColumn,
    string
  >;
  const [row] = await snapshot.query<Row>(sql, { addonId: addonId ?? '', totalUnlessSet }, signal);
  if (!row) throw new Error('the row of the capacity is gone');
  return {
    nowMs: row.now_ms,
    total: row.total,
    busyRating: row.busy_rating,
    allUsed: Number(row.all_used),
    gauges: numbersOf(gaugeColumns, row),
    last24h: numbersOf(counterColumns, row),
  };
}

const numbersOf = <Name extends string>(
  names: readonly Name[],
  row: Record<Name, string>,
): Record<Name, number> =>
  Object.fromEntries(names.map((name) => [name, Number(row[name])])) as Record<Name, number>;

/** The columns of a metric: of totals, tallies and rollups, with its amount and its histogram. */
function sourceOf(metric: Metric): {
  total: string;
  amount: string;
  tally: string;
  slots: string;
  counts: string;
} {
  const nothing = {
    total: '0',
    slots: 'null::smallint[]',
    counts: 'null::bigint[]',
    tally: 'null::smallint[]',
  };
  if (metric.kind === 'gauge') return { ...nothing, total: metric.column, amount: metric.column };
  if (metric.kind === 'counter') return { ...nothing, amount: metric.column };
  if (metric.kind === 'usable') return { ...nothing, amount: 'usable' };
  const { of } = metric;
  return { total: '0', amount: '0', tally: `${of}s`, slots: `${of}_slots`, counts: `${of}_counts` };
}

/**
 * As JSON: a month has hundreds of thousands of numbers, and the driver's array parser tests every character.
 */
const list = (array: string): string => `translate(${array}::text, '{}', '[]')`;

const ms = (time: string): string => `extract(epoch from ${time})::float8 * 1000`;

// Names of columns come only from the table of metrics.
function series(metric: Metric): string {
  const { total, amount, tally, slots, counts } = sourceOf(metric);
  const isSampled = metric.kind === 'usable';
  return `
with ${pending}, since as materialized (
  select date_bin(@widthMs::float8 * interval '1 ms', now, timestamptz 'epoch')
    - (@points::int - 1) * @widthMs::float8 * interval '1 ms' as since
  from clock
)
select 'now' as kind, ${ms('now')} as ms, ${
    isSampled
      ? 'null::bigint'
      : `(coalesce((select ${total} from stat_totals where addon_id = @addonId), 0)
    + (select coalesce(sum(${metric.kind === 'gauge' ? amount : '0'}), 0) from pending))::bigint`
  } as amount, null::text as slots, null::text as counts
from clock
union all
select 'lived', ${ms('bucket')}, null, null, null from stat_rollups
where addon_id = '' and @addonId <> '' and level = @level::smallint and bucket >= (select since from since)
union all
select distinct 'lived', ${ms("date_bin(interval '1 minute', at, timestamptz 'epoch')")}, null::bigint, null,
  null
from stat_tallies where txid >= (select txid from mark)
union all
select 'rolled', ${ms('bucket')}, ${amount}, ${list(slots)}, ${list(counts)} from stat_rollups
where addon_id = @addonId and level = @level::smallint and bucket >= (select since from since)
union all
select 'open', ${ms('at')}, ${isSampled ? 'null::bigint' : amount}, ${list(tally)}, null from pending
where ${isSampled ? 'false' : 'at >= (select since from since)'}`;
}

const seriesOf = (metric: Metric) =>
  preparedStatement(['addonId', 'level', 'widthMs', 'points'], series(metric));

const statements = new Map<Metric, ReturnType<typeof seriesOf>>(
  Object.values(metrics).map((metric) => [metric, seriesOf(metric)]),
);

/** The parts of a series. The current value of `capacity_usable` is missing, because no tally has it. */
export async function readSeries(
  sql: Sql,
  metric: Metric,
  { widthMs, points, level }: SeriesPlan,
  addonId: string | null,
  signal?: AbortSignal,
): Promise<SeriesFacts> {
  type Row = {
    kind: string;
    ms: number;
    amount: string | null;
    slots: string | null;
    counts: string | null;
  };
  const params = { addonId: addonId ?? '', level, widthMs, points };
  const rows = await (statements.get(metric) ?? seriesOf(metric)).query<Row>(sql, params, signal);
  const now = rows.find(({ kind }) => kind === 'now');
  if (!now) throw new Error('the database did not tell the time');
  const parts = rows.filter(({ kind }) => kind === 'rolled' || kind === 'open');
  const isLived = ({ kind }: Row) => kind === 'lived' || (kind === 'rolled' && addonId === null);
  return {
    nowMs: now.ms,
    current: Number(now.amount ?? 0),
    livedMs: rows.filter(isLived).map((row) => row.ms),
    parts: parts.map(({ ms: tsMs, amount, slots, counts }) => ({
      tsMs,
      amount: Number(amount ?? 0),
      slots: numbersIn(slots),
      counts: numbersIn(counts),
    })),
  };
}

const numbersIn = (text: string | null): number[] => (text === null ? [] : (JSON.parse(text) as number[]));

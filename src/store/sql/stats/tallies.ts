import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type CounterColumn, type GaugeColumn, slotGrowth, slotMax } from '../../../domain/stats/series.ts';

/** The values of a tally: aggregates by column name. Omitted values are 0. */
type Sums = Partial<Record<GaugeColumn | CounterColumn | 'waits' | 'runs', string>>;

/**
 * The part of a statement that writes the tallies of its own changes: a row for each lane, from a part with a
 * `lane_id`. It needs no round trip, reads nothing and waits for no lock. The aggregation looks up the
 * submitters of the lanes.
 */
export const tally = (from: string, at: string, sums: Sums): string => `
  insert into stat_tallies (txid, at, lane_id, ${Object.keys(sums).join(', ')})
  select pg_current_xact_id()::text::bigint, min(${at}), lane_id, ${Object.values(sums).join(', ')}
  from ${from} group by lane_id`;

/** The changes in one lane that are known without a query. Omitted values are 0. */
export type LaneTally = Partial<Record<GaugeColumn | CounterColumn, number>> & {
  laneId: number;
  runs: number[];
};

const endColumns = ['running', 'used', 'expired', 'done', 'failed', 'canceled', 'timeouts'] as const;

/**
 * The part of a statement that writes the tallies of leases that end, from a parameter that holds the
 * `tallyRows`. `at` is the time at which their jobs finish, so that a retry finds the minute in which a
 * failure was counted.
 */
export const tallyAll = (param: string, at: string): string => `
  insert into stat_tallies (txid, at, lane_id, runs, ${endColumns.join(', ')})
  select pg_current_xact_id()::text::bigint, ${at}, lane_id, runs, ${endColumns.join(', ')}
  from jsonb_to_recordset(${param}::jsonb) as tally (lane_id int, runs smallint[],
    ${endColumns.map((column) => `${column} bigint`).join(', ')})`;

export const tallyRows = (tallies: Iterable<LaneTally>): string =>
  JSON.stringify(
    Array.from(tallies, ({ laneId, runs, ...sums }) => ({
      lane_id: laneId,
      runs,
      ...Object.fromEntries(endColumns.map((column) => [column, sums[column] ?? 0])),
    })),
  );

/**
 * The part of a statement that takes retried failures out of the count of failed jobs, from a part with the
 * outcomes and their lanes. A failure of more than a day ago is no longer counted, and its rollups may be
 * deleted.
 */
export const tallyRetried = (from: string): string => `
  insert into stat_tallies (txid, at, lane_id, failed_retried)
  select pg_current_xact_id()::text::bigint, min(finished_at), lane_id, count(*)
  from ${from} where state = ${stateNumber('FAILED')} and finished_at > clock_timestamp() - interval '25 hours'
  group by lane_id, date_trunc('minute', finished_at)`;

/** The slot of a duration; see `domain/stats/series.ts`. Not with `extract`, which computes in decimals. */
export const slotOf = (interval: string): string =>
  `least(ceil(ln(greatest(date_part('epoch', ${interval}) * 1000, 1)) / ${Math.log(slotGrowth)}), ${slotMax})::smallint`;

import { type CounterColumn, type GaugeColumn, slotGrowth, slotMax } from '../../domain/stats.ts';

/** What a tally says of the rows it is made of: aggregates by the names of their columns. What is left out is 0. */
type Sums = Partial<Record<GaugeColumn | CounterColumn | 'waits' | 'runs', string>>;

/**
 * The part of a statement that writes the tallies of what the statement has changed: a row for each lane, from a part
 * that has a `lane_id`. It adds no journey to the database, reads nothing and waits for nobody; who the lanes belong to
 * is looked up when tallies are added up.
 */
export const tally = (from: string, at: string, sums: Sums): string => `
  insert into stat_tallies (txid, at, lane_id, ${Object.keys(sums).join(', ')})
  select pg_current_xact_id()::text::bigint, min(${at}), lane_id, ${Object.values(sums).join(', ')}
  from ${from} group by lane_id`;

/** The slot of a duration; see `domain/stats.ts`. Not with `extract`, which reckons in decimals. */
export const slotOf = (interval: string): string =>
  `least(ceil(ln(greatest(date_part('epoch', ${interval}) * 1000, 1)) / ${Math.log(slotGrowth)}), ${slotMax})::smallint`;

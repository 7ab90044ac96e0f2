import { raw } from '@mikro-orm/core';
import { claimedStates, leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type GaugeColumn, gaugeColumns } from '../../../domain/stats/series.ts';
import type { EntitySql, Sql } from '../../connection/sql.ts';
import { StatFold } from '../../schema/stat-entities.ts';
import { aggregationMark } from './aggregate.ts';

const claimed = claimedStates.map(stateNumber).join(', ');
const leased = leasedStates.map(stateNumber).join(', ');

const truth: Record<GaugeColumn, string> = {
  queued: `count(*) filter (where state = ${stateNumber('QUEUED')})`,
  claimed: `count(*) filter (where state in (${claimed}))`,
  reserved: `sum(cost_units) filter (where state in (${claimed}))`,
  running: `count(*) filter (where state in (${leased}))`,
  used: `sum(cost_units) filter (where state in (${leased}))`,
};
const listed = (of: (column: GaugeColumn) => string): string => gaugeColumns.map(of).join(', ');

// One snapshot has the jobs, the totals and the tallies, so a difference is an error. The correction is an
// ordinary tally, which is right whatever happens meanwhile. A submitter whose lanes are all idle may have no
// lane that a tally could name: its total is corrected directly, and the next audit sums up the total of all.
const audit = `
with ${aggregationMark}, counted as (
  select lane_id, ${listed((column) => `${truth[column]} as ${column}`)} from live_jobs group by lane_id
), part as (
  select lanes.addon_id, ${listed((column) => `coalesce(counted.${column}, 0) as ${column}`)}
  from counted join lanes on lanes.lane_id = counted.lane_id
  union all
  select addon_id, ${listed((column) => `-${column}`)} from stat_totals where addon_id <> ''
  union all
  select lanes.addon_id, ${listed((column) => `-tally.${column}`)}
  from stat_tallies tally join lanes on lanes.lane_id = tally.lane_id
  where tally.txid >= (select txid from mark)
), missing as (
  select addon_id, ${listed((column) => `sum(${column})::bigint as ${column}`)} from part
  group by addon_id having ${gaugeColumns.map((column) => `sum(${column}) <> 0`).join(' or ')}
), repaired as (
  insert into stat_tallies (txid, at, lane_id, ${gaugeColumns.join(', ')})
  select pg_current_xact_id()::text::bigint, clock_timestamp(), first.lane_id, ${gaugeColumns.join(', ')}
  from missing cross join lateral (
    select lane_id from lanes where lanes.addon_id = missing.addon_id limit 1
  ) first
), corrected as (
  update stat_totals total set ${listed((column) => `${column} = total.${column} + missing.${column}`)}
  from missing
  where total.addon_id = missing.addon_id
    and not exists (select from lanes where lanes.addon_id = missing.addon_id)
), stamped as (
  update stat_fold set audited_at = clock_timestamp() where fold_id = 1
)
select addon_id as "addonId", ${listed((column) => `${column}::float8 as ${column}`)} from missing order by addon_id`;

// Every tally is added to both, so they differ only after a manual change.
const sumUp = `
update stat_totals whole set ${listed((column) => `${column} = part.${column}`)}
from (
  select ${listed((column) => `coalesce(sum(${column}), 0)::bigint as ${column}`)} from stat_totals where addon_id <> ''
) part
where whole.addon_id = '' and (${listed((column) => `whole.${column}`)}) <> (${listed((column) => `part.${column}`)})
returning whole.addon_id`;

/** Errors that were found and corrected. */
export interface Repairs {
  /** Amounts missing in the totals of submitters; negative if a total was too high. */
  shortfalls: ({ addonId: string } & Record<GaugeColumn, number>)[];
  /** The total of all did not match the sum of the submitters. */
  wasTotalWrong: boolean;
}

/**
 * Compares the totals with the jobs, and corrects differences. The caller must hold the lock of the
 * aggregation.
 */
export async function auditTotals(sql: Sql): Promise<Repairs> {
  // All live jobs are counted; reading them in the order of an index would take many times as long.
  await sql.query('set local enable_seqscan = on', []);
  const wrong = await sql.query(sumUp, []);
  const shortfalls = await sql.query<Repairs['shortfalls'][number]>(audit, []);
  return { shortfalls, wasTotalWrong: wrong.length > 0 };
}

/** Whether the last audit was longer ago than this. */
export async function isAuditDue(sql: EntitySql, everyMs: number): Promise<boolean> {
  const longAgo = raw(`clock_timestamp() - ?::float8 * interval '1 ms'`, [everyMs]);
  const due = { fold_id: 1, $or: [{ audited_at: null }, { audited_at: { $lt: longAgo } }] };
  return (await sql.em().findOne(StatFold, due)) !== null;
}

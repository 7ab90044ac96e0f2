/** Quotas of tenants. Changes run in a transaction, and raise the revision that servers look at. */
import { raw } from '@mikro-orm/core';
import type { Quota, QuotaLimits, TenantUse } from '../../../domain/access/quota.ts';
import { type EntitySql, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { TenantQuota } from '../../schema/access-entities.ts';
import { raiseRevision } from '../access/keys.ts';
import { textArray, uuidArray } from '../array-params.ts';
import { aggregationMark } from '../stats/aggregate.ts';

const numberOf = (value: string | number | null | undefined): number | null =>
  value == null ? null : Number(value);

/** In the order of their names. */
export async function readQuotas(sql: EntitySql, signal?: AbortSignal): Promise<Quota[]> {
  const rows = await sql.em(signal).find(TenantQuota, {}, { orderBy: { addon_id: 'asc' } });
  return rows.map((row) => ({
    addonId: row.addon_id,
    maxUnits: numberOf(row.max_units),
    maxQueued: numberOf(row.max_queued),
    maxPayloadBytes: numberOf(row.max_payload_bytes),
    updatedAtMs: timeMs(row.updated_at),
    updatedBy: row.updated_by,
  }));
}

/** The quotas of other tenants. */
export const countOtherQuotas = (sql: EntitySql, addonId: string): Promise<number> =>
  sql.em().count(TenantQuota, { addon_id: { $ne: addonId } });

/** Replaces the limits of a tenant. The row of the revision is locked first, so changes never meet. */
export async function writeQuota(
  sql: EntitySql,
  addonId: string,
  { maxUnits, maxQueued, maxPayloadBytes }: QuotaLimits,
  updatedBy: string,
): Promise<void> {
  await raiseRevision(sql);
  const values = {
    max_units: maxUnits === null ? null : String(maxUnits),
    max_queued: maxQueued === null ? null : String(maxQueued),
    max_payload_bytes: maxPayloadBytes,
    updated_at: raw('clock_timestamp()'),
    updated_by: updatedBy,
  };
  const changed = await sql.em().nativeUpdate(TenantQuota, { addon_id: addonId }, values);
  if (changed === 0) await sql.em().insert(TenantQuota, { addon_id: addonId, ...values });
}

/** Returns whether there was one. */
export async function deleteQuota(sql: EntitySql, addonId: string): Promise<boolean> {
  await raiseRevision(sql);
  return (await sql.em().nativeDelete(TenantQuota, { addon_id: addonId })) > 0;
}

// The totals and the tallies of one snapshot are exact: every commit wrote its tally.
const useStatement = preparedStatement(
  ['addonIds'],
  `
with ${aggregationMark}, pending as materialized (
  select lanes.addon_id, sum(queued) as queued, sum(used + reserved) as units
  from stat_tallies tally cross join ${lateralByKey('lanes', 'lane_id', 'tally.lane_id')} lanes
  where tally.txid >= (select txid from mark) and lanes.addon_id = any (@addonIds::text[])
  group by lanes.addon_id
)
select asked.addon_id, quota.max_units::float8 as max_units,
  (coalesce(total.queued, 0) + coalesce(pending.queued, 0))::float8 as queued,
  (coalesce(total.used + total.reserved, 0) + coalesce(pending.units, 0))::float8 as units
from unnest(@addonIds::text[]) as asked (addon_id)
left join ${lateralByKey('tenant_quotas', 'addon_id', 'asked.addon_id')} quota on true
left join ${lateralByKey('stat_totals', 'addon_id', 'asked.addon_id')} total on true
left join pending on pending.addon_id = asked.addon_id`,
);

interface UseRow {
  addon_id: string;
  queued: number;
  units: number;
  max_units: number | null;
}

/** What these tenants use, as one snapshot sees it. */
export async function readUse(
  sql: Sql,
  addonIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, TenantUse>> {
  const rows = await useStatement.query<UseRow>(sql, { addonIds: textArray(addonIds) }, signal);
  return new Map(rows.map(({ addon_id, queued, units }) => [addon_id, { queued, units }]));
}

/** The units that these tenants have left, of those that have a quota of units. It may be below 0. */
export async function readUnitsLeft(
  sql: Sql,
  addonIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, number>> {
  const rows = await useStatement.query<UseRow>(sql, { addonIds: textArray(addonIds) }, signal);
  return new Map(
    rows.flatMap(({ addon_id, units, max_units }): [string, number][] =>
      max_units === null ? [] : [[addon_id, max_units - units]],
    ),
  );
}

const findAddons = preparedStatement(
  ['jobIds'],
  `
select job.job_id, job.addon_id from unnest(@jobIds::uuid[]) as wanted (job_id)
  cross join ${lateralByKey('jobs', 'job_id', 'wanted.job_id')} job`,
);

/** The tenants of jobs. */
export async function addonsOf(
  sql: Sql,
  jobIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, string>> {
  if (jobIds.length === 0) return new Map();
  type Row = { job_id: string; addon_id: string };
  const rows = await findAddons.query<Row>(sql, { jobIds: uuidArray(jobIds) }, signal);
  return new Map(rows.map(({ job_id, addon_id }) => [job_id, addon_id]));
}

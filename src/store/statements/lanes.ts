import { createHash } from 'node:crypto';
import type { Sql } from '../sql.ts';
import { booleanArray, textArray } from './arrays.ts';

/** What decides which worker may have a job, apart from its cost. */
export interface Lane {
  stream: string | null;
  addonId: string;
  jobType: string;
  requires: readonly string[];
  heavy: readonly string[];
  /** Its jobs are not for a worker that already holds a lease. */
  unique: boolean;
}

/** All that a lane is, as one text. */
export const laneWords = ({ stream, addonId, jobType, requires, heavy, unique }: Lane): string =>
  // Lanes are known by these words in databases that are older than unique lanes.
  JSON.stringify([stream, addonId, jobType, requires, heavy, ...(unique ? ['unique'] : [])]);

/** The fixed-length name of a lane; the columns together would be too long for an index. */
export const laneKey = (lane: Lane): string =>
  createHash('sha256').update(laneWords(lane)).digest('base64url');

/** Makes the lanes that are not there yet, and answers with the number of each by its key. */
export async function ensureLanes(sql: Sql, lanes: ReadonlyMap<string, Lane>): Promise<Map<string, number>> {
  // Sorted, so that two servers that make the same lanes wait for each other and never in a circle.
  const keys = [...lanes.keys()].sort();
  const columns = keys.map((key) => lanes.get(key) as Lane);
  await sql.query(
    `insert into lanes (lane_key, stream, addon_id, job_type, requires, heavy, is_unique)
    select lane_key, stream, addon_id, job_type, requires::text[], heavy::text[], is_unique
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::boolean[])
      as new (lane_key, stream, addon_id, job_type, requires, heavy, is_unique)
    where not exists (select from lanes old where old.lane_key = new.lane_key)
    on conflict (lane_key) do nothing`,
    [
      textArray(keys),
      textArray(columns.map((lane) => lane.stream ?? '')),
      textArray(columns.map((lane) => lane.addonId)),
      textArray(columns.map((lane) => lane.jobType)),
      textArray(columns.map((lane) => textArray(lane.requires))),
      textArray(columns.map((lane) => textArray(lane.heavy))),
      booleanArray(columns.map((lane) => lane.unique)),
    ],
  );
  // Another server's lanes are visible only to a statement that starts after the insert has waited for them.
  const rows = await sql.query<{ lane_key: string; lane_id: number }>(
    'select lane_key, lane_id from lanes where lane_key = any($1::text[])',
    [textArray(keys)],
  );
  return new Map(rows.map(({ lane_key, lane_id }) => [lane_key, lane_id]));
}

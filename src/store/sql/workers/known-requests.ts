import { sql as raw } from 'kysely';
import type { KnownRequest } from '../../../domain/workers/known-requests.ts';
import type { EntitySql } from '../../connection/sql.ts';
import { select } from '../../schema/tables.ts';

/**
 * Maximum number of different requests that are read. With more, nothing is concluded from the requests of
 * workers.
 */
const asksMax = 1_000;

/**
 * The requests of known workers; null if there are more than can be compared with jobs. Workers that request
 * the same jobs count as one request, however many jobs each of them would take.
 */
export async function readKnownRequests(
  sql: EntitySql,
  signal?: AbortSignal,
): Promise<KnownRequest[] | null> {
  const rows = await select(
    sql,
    (tables) =>
      tables
        .selectFrom('workers')
        .crossJoinLateral(raw<{ value: unknown }>`jsonb_array_elements(asks)`.as<'one'>(raw`one`))
        .select([raw<KnownRequest>`one.value - 'jobs'`.as('ask'), 'asks_cut as asksCut'])
        .distinct()
        .where('expires_at', '>', raw<Date>`clock_timestamp()`)
        .limit(asksMax + 1),
    signal,
  );
  if (rows.length > asksMax) return null;
  // A worker with more kinds than are stored may request any job.
  return rows.map(({ ask, asksCut }) => (asksCut ? { ...ask, isCut: true } : ask));
}

import { sql as raw } from 'kysely';
import type { KnownRequest } from '../../../domain/workers/known-requests.ts';
import type { EntitySql } from '../../connection/sql.ts';
import { select } from '../../schema/tables.ts';

/** Different asks that are read. Beyond them nothing is concluded from what workers ask for. */
const asksMax = 1_000;

/**
 * What known workers ask for; null where that is more than can be compared with jobs. Workers that ask for the same jobs are one ask
 * here, however many jobs each of them would take.
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
  // A worker that asks for more kinds than are kept may ask for any of them.
  return rows.map(({ ask, asksCut }) => (asksCut ? { ...ask, isCut: true } : ask));
}

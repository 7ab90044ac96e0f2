import { prepared } from '../connection/prepared-client.ts';
import type { Sql } from '../connection/sql.ts';
import { textArray } from './array-params.ts';

const lock = prepared(
  'select pg_advisory_xact_lock(hashtextextended(request_id, 0)) from unnest($1::text[]) as request_id',
);

/** The same request may be under way on another server. Locked in one order, so that nobody waits in a circle. */
export async function lockRequests(sql: Sql, requestIds: readonly string[], signal?: AbortSignal) {
  await sql.query(lock, [textArray([...new Set(requestIds)].sort())], signal);
}

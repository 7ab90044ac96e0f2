import { prepared } from '../connection/prepared-client.ts';
import type { Sql } from '../connection/sql.ts';
import { textArray } from './array-params.ts';

const lock = prepared(
  'select pg_advisory_xact_lock(hashtextextended(request_id, 0)) from unnest($1::text[]) as request_id',
);

/**
 * Serializes requests with the same id, also across servers. Locks are taken in one order, so they cannot
 * deadlock.
 */
export async function lockRequests(sql: Sql, requestIds: readonly string[], signal?: AbortSignal) {
  await sql.query(lock, [textArray([...new Set(requestIds)].sort())], signal);
}

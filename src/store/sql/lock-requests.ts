import type { Sql } from '../connection/sql.ts';
import { preparedStatement } from '../connection/statement.ts';
import { textArray } from './array-params.ts';

const lock = preparedStatement(
  ['requestIds'],
  `select pg_advisory_xact_lock(hashtextextended(request_id, 0))
  from unnest(@requestIds::text[]) as request_id`,
);

/**
 * Serializes requests with the same id, also across servers. Locks are taken in one order, so they cannot
 * deadlock.
 */
export async function lockRequests(sql: Sql, requestIds: readonly string[], signal?: AbortSignal) {
  await lock.query(sql, { requestIds: textArray([...new Set(requestIds)].sort()) }, signal);
}

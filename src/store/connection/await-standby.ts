import type { Sql } from './sql.ts';

// PostgreSQL waits for the standby at commit only if the transaction has an id and has written to the WAL. A
// logical message does both and touches no table.
const statement = `select case when current_setting('synchronous_standby_names') <> ''
  then pg_logical_emit_message(true, 'leasehold', '') end as position`;

/**
 * Commits a transaction of its own. When it returns, all earlier commits are on the synchronous standby as
 * well.
 */
export async function awaitStandby(sql: Sql, signal: AbortSignal | undefined): Promise<void> {
  await sql.query(statement, [], signal);
}

import type { Sql } from './sql.ts';

// A commit waits for the standby only where its transaction has an id and has written to the log. A logical message does both
// and touches no table.
const statement = `select case when current_setting('synchronous_standby_names') <> ''
  then pg_logical_emit_message(true, 'leasehold', '') end as position`;

/** Commits something, so that everything that was committed before is on the synchronous standby as well. */
export async function awaitStandby(sql: Sql, signal: AbortSignal | undefined): Promise<void> {
  await sql.query(statement, [], signal);
}

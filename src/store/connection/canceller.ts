/**
 * Cancels a running statement over a separate connection, because the statement occupies its own.
 *
 * A backend that waits for a synchronous standby is not cancelled. Its transaction has committed locally, and
 * a cancel would end the wait and report the commit as if the standby had it. A commit may still begin to
 * wait between the check and the cancel; `PreparedClient` recognises the warning that PostgreSQL then sends.
 *
 * Returns `settled` when no cancel can arrive any more, and `unknown` when one may still arrive. The call
 * takes at most `connectMs + answerMs`, also if the connection dies silently.
 */
import pg from 'pg';
import { hangUp } from './hang-up.ts';

const connectMs = 3_500;
const answerMs = 1_500;

const cancel = `select pg_cancel_backend(pid) from pg_stat_activity
  where pid = $1 and wait_event is distinct from 'SyncRep'`;

export async function cancelStatement(
  config: pg.ClientConfig,
  processId: number,
): Promise<'settled' | 'unknown'> {
  const client = new pg.Client({
    ...config,
    application_name: 'leasehold canceller',
    connectionTimeoutMillis: connectMs,
    query_timeout: answerMs,
  });
  // A connection error also rejects the query. Without a listener the error would end the process.
  client.on('error', () => {});
  let outcome: 'settled' | 'unknown' = 'settled';
  try {
    await client.connect();
    outcome = 'unknown';
    await client.query(cancel, [processId]);
    outcome = 'settled';
  } catch {
    // The database is full or unreachable. The statement ends by its own timeout or with its connection.
  } finally {
    await hangUp(client);
  }
  return outcome;
}

/**
 * Stops a running statement over a connection of its own, because the statement's connection is busy with it.
 *
 * A backend that waits for a synchronous standby is left alone: its transaction has committed locally, and a cancel would end
 * the wait and let the commit be answered as if the standby had it. Between the look and the cancel a commit may
 * begin to wait all the same; `PreparingClient` recognises the warning that PostgreSQL then sends.
 *
 * Answers `settled` when no cancel can arrive any more, and `unknown` when one may still be on its way. Takes at most
 * `connectMs + answerMs`, also where the connection dies in silence.
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
  // What breaks the connection rejects the query as well. Without a listener Node would end the process.
  client.on('error', () => {});
  let outcome: 'settled' | 'unknown' = 'settled';
  try {
    await client.connect();
    outcome = 'unknown';
    await client.query(cancel, [processId]);
    outcome = 'settled';
  } catch {
    // The database is full or away. The statement ends by its own timeout, or with its connection.
  } finally {
    await hangUp(client);
  }
  return outcome;
}

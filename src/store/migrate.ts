import type { Database } from './database.ts';

/** Any number, as long as every version of the server takes the same one. */
const advisoryLock = 7_160_523;

/**
 * Brings the schema up to date and says which migrations ran. Several servers may start at once: all but one wait,
 * and then find nothing to do.
 */
export async function migrate(database: Database): Promise<string[]> {
  const { migrator } = database.orm;
  await checkEncoding(database);
  if (database.engine === 'embedded') return (await migrator.up()).map(({ name }) => name);
  return database.transaction(async (sql) => {
    // The migrator works on connections of its own; this one only holds the lock, and lets go with the transaction.
    await sql.query('select set_config($1, $2, true), set_config($3, $4, true), set_config($5, $6, true)', [
      'lock_timeout',
      '0',
      'statement_timeout',
      '0',
      'idle_in_transaction_session_timeout',
      '0',
    ]);
    await sql.query('select pg_advisory_xact_lock($1)', [advisoryLock]);
    return (await migrator.up()).map(({ name }) => name);
  });
}

/** What cannot hold every character would refuse some jobs, and with them the batches they came in. */
async function checkEncoding(database: Database): Promise<void> {
  const [row] = await database
    .query<{ encoding: string }>("select current_setting('server_encoding') as encoding", [])
    .catch((cause: unknown) => {
      // It is the first that a PostgreSQL is asked, and its own words do not tell which program could not be reached.
      if (database.engine === 'embedded') throw cause;
      throw new Error('the PostgreSQL that DATABASE_URL names cannot be used', { cause });
    });
  if (row?.encoding !== 'UTF8')
    throw new Error(`the database's encoding is ${row?.encoding}; it must be UTF8`);
}

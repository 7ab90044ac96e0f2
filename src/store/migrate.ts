import { setTimeout as delay } from 'node:timers/promises';
import type { Sql } from './connection/sql.ts';
import type { Database } from './database.ts';
import { migrations } from './migrations/index.ts';
import {
  announceMigrations,
  checkSchemaVersion,
  recordMigrations,
  withdrawMigrations,
} from './schema-compatibility.ts';

/** Any number, as long as every version of the server takes the same one. */
const advisoryLock = 7_160_523;

/**
 * Brings the schema up to date and names the migrations that ran. Of several servers that start at once, one migrates
 * and the others wait. Throws `SchemaTooNewError` where a newer version has made the schema unfit for this one.
 */
export async function migrate(database: Database): Promise<string[]> {
  await checkEncoding(database);
  if (database.engine === 'embedded') return apply(database, database);
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
    return apply(database, database);
  });
}

/** Runs what is pending. `sql` commits each statement, so that other servers read an announcement at once. */
async function apply({ orm: { migrator } }: Database, sql: Sql): Promise<string[]> {
  await checkSchemaVersion(sql);
  const pending = (await migrator.getPending()).map(({ name }) => name);
  if (pending.length > 0) {
    const waitMs = await announceMigrations(sql, pending);
    if (waitMs > 0) await delay(waitMs);
    try {
      await migrator.up();
    } catch (error) {
      // Where the connection is lost as well, the next start removes the announcement.
      await withdrawMigrations(sql, pending).catch(() => {});
      throw error;
    }
  }
  await recordMigrations(
    sql,
    migrations.map(({ name }) => name),
  );
  return pending;
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

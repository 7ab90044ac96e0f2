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

/** Any number, as long as every version of the server uses the same one. */
const advisoryLock = 7_160_523;

/**
 * Updates the schema and returns the names of the migrations that ran. If several servers start at once, one
 * migrates and the others wait. Throws `SchemaTooNewError` if a newer version's schema excludes this one.
 */
export async function migrate(database: Database): Promise<string[]> {
  await checkEncoding(database);
  if (database.engine === 'embedded') return apply(database, database);
  return database.transaction(async (sql) => {
    // The migrator uses connections of its own. This transaction only holds the lock, until it ends.
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

/**
 * Runs the pending migrations. `sql` commits each statement, so that other servers read an announcement at
 * once.
 */
async function apply({ orm: { migrator } }: Database, sql: Sql): Promise<string[]> {
  await checkSchemaVersion(sql);
  const pending = (await migrator.getPending()).map(({ name }) => name);
  if (pending.length > 0) {
    const waitMs = await announceMigrations(sql, pending);
    if (waitMs > 0) await delay(waitMs);
    try {
      await migrator.up();
    } catch (error) {
      // If the connection is lost as well, the next start removes the announcement.
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

/**
 * An encoding that lacks some characters would refuse jobs that contain them, and with them their whole
 * batches.
 */
async function checkEncoding(database: Database): Promise<void> {
  const [row] = await database
    .query<{ encoding: string }>("select current_setting('server_encoding') as encoding", [])
    .catch((cause: unknown) => {
      // This is the first query that reaches PostgreSQL, and its own error does not name what could not be
      // reached.
      if (database.engine === 'embedded') throw cause;
      throw new Error('the PostgreSQL that DATABASE_URL names cannot be used', { cause });
    });
  if (row?.encoding !== 'UTF8')
    throw new Error(`the database's encoding is ${row?.encoding}; it must be UTF8`);
}

import { isOlder } from '../lib/compare-versions.ts';
import { version } from '../lib/version.ts';
import type { Sql } from './connection/sql.ts';
import { migrations } from './migrations/index.ts';
import { SchemaTooNewError } from './schema-too-new.ts';

/**
 * Which server versions may write to this schema.
 *
 * Each migration names the oldest server version that may still write beside it (`oldestWriter`). Table
 * `schema_compatibility` has one row for each migration, so that an older server can read requirements that
 * its own code does not know. The highest `oldest_writer` of all rows is the requirement:
 *
 * - A server below it refuses to start (`checkSchemaVersion`).
 * - A running server below it answers writes with `unavailable` (`SchemaMonitor`).
 * - A server at or above it works, also beside migrations that it does not know.
 *
 * A migration that raises the requirement is announced before it runs (`announceMigrations`). The migrating
 * server commits the rows first and then waits `announceMs`, in which every running server reads them. If the
 * migration fails, it withdraws the rows. If it dies in between, the next start of any server removes them,
 * because the migration did not run.
 */

/** Longer than a running server takes to read the requirement; see `SchemaMonitor`. */
const announceMs = 3_000;

export interface Requirement {
  migration: string;
  oldestWriter: string;
}

export const refusal = ({ migration, oldestWriter }: Requirement): string =>
  `schema too new: migration ${migration} needs version ${oldestWriter} or later to write, and this server is ${version}`;

/**
 * The row with the highest required version, if this server is older than it. Undefined if there is no table
 * yet.
 */
export async function unmetRequirement(sql: Sql): Promise<Requirement | undefined> {
  if (!(await hasTable(sql))) return undefined;
  const rows = await sql.query<Requirement>(
    'select migration, oldest_writer as "oldestWriter" from schema_compatibility order by migration desc',
    [],
  );
  let strictest: Requirement | undefined;
  for (const row of rows) {
    if (!strictest || isOlder(strictest.oldestWriter, row.oldestWriter)) strictest = row;
  }
  return strictest && isOlder(version, strictest.oldestWriter) ? strictest : undefined;
}

/**
 * Removes announcements of migrations that never ran, and throws if this server may not write to the schema.
 */
export async function checkSchemaVersion(sql: Sql): Promise<void> {
  if (!(await hasTable(sql))) return;
  await sql.query(
    'delete from schema_compatibility where migration not in (select name from leasehold_migrations)',
    [],
  );
  const unmet = await unmetRequirement(sql);
  if (unmet) throw new SchemaTooNewError(refusal(unmet));
}

/**
 * Announces pending migrations to running servers. Returns how long the migrating server waits before it runs
 * them: zero if no other server is connected, or if the requirement does not rise.
 */
export async function announceMigrations(sql: Sql, pending: readonly string[]): Promise<number> {
  // Servers from before the table exists cannot read it.
  if (!(await hasTable(sql))) return 0;
  const before = await strictestVersion(sql);
  await recordMigrations(sql, pending);
  const after = await strictestVersion(sql);
  if (before !== undefined && after !== undefined && !isOlder(before, after)) return 0;
  const [listening] = await sql.query<{ exists: boolean }>(
    `select exists (select from pg_stat_activity
      where application_name = 'leasehold listener' and datname = current_database()) as exists`,
    [],
  );
  // Every running server listens; a starting server does not yet.
  return listening?.exists ? announceMs : 0;
}

async function hasTable(sql: Sql): Promise<boolean> {
  const [table] = await sql.query<{ exists: boolean }>(
    "select to_regclass('schema_compatibility') is not null as exists",
    [],
  );
  return table?.exists ?? false;
}

async function strictestVersion(sql: Sql): Promise<string | undefined> {
  const rows = await sql.query<{ oldest_writer: string }>(
    'select oldest_writer from schema_compatibility',
    [],
  );
  return rows.map((row) => row.oldest_writer).reduce<string | undefined>(newest, undefined);
}

const newest = (best: string | undefined, one: string): string =>
  best === undefined || isOlder(best, one) ? one : best;

/** Withdraws an announcement after the migrations failed. */
export async function withdrawMigrations(sql: Sql, names: readonly string[]): Promise<void> {
  if (!(await hasTable(sql))) return;
  await sql.query('delete from schema_compatibility where migration = any($1::text[])', [names]);
}

/** Writes a row for each of these migrations, as this version knows them. Correct rows stay untouched. */
export async function recordMigrations(sql: Sql, names: readonly string[]): Promise<void> {
  const known = migrations.filter(({ name }) => names.includes(name));
  await sql.query(
    `insert into schema_compatibility (migration, oldest_writer)
    select migration, oldest_writer from unnest($1::text[], $2::text[]) as known (migration, oldest_writer)
    on conflict (migration) do update set oldest_writer = excluded.oldest_writer
    where schema_compatibility.oldest_writer <> excluded.oldest_writer`,
    [known.map(({ name }) => name), known.map(({ oldestWriter }) => oldestWriter)],
  );
}

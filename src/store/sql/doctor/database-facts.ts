import { sql as raw } from 'kysely';
import type {
  DatabaseFacts,
  ServiceFacts,
  SessionsFacts,
  SlotFacts,
  TableFacts,
} from '../../../domain/doctor/facts.ts';
import { type EntitySql, type Sql, timeMs } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { migrations } from '../../migrations/index.ts';
import { select } from '../../schema/tables.ts';
import { auditCapacity } from '../leases/capacity.ts';

/** Settings that the doctor checks, whatever a connection of this server overrides. */
const settingNames = [
  'fsync',
  'full_page_writes',
  'synchronous_commit',
  'autovacuum',
  'track_counts',
  'default_transaction_isolation',
  'max_connections',
  'superuser_reserved_connections',
];

const basics = statement(
  ['settingNames'],
  `
select current_setting('server_version') as version, current_setting('server_version_num')::int as number,
  pg_is_in_recovery() as is_read_only, pg_database_size(current_database())::float8 as database_bytes,
  (select age(datfrozenxid) from pg_database where datname = current_database()) as transaction_age,
  (select jsonb_object_agg(name, current_setting(name)) from unnest(@settingNames::text[]) as name)
    as settings,
  pg_size_bytes(current_setting('shared_buffers'))::text as shared_buffers`,
);

type Basics = Pick<
  DatabaseFacts,
  'version' | 'versionNumber' | 'isReadOnly' | 'settings' | 'databaseBytes' | 'transactionAge'
>;

/** Version, settings and size of the database. */
export async function readBasics(sql: Sql, signal?: AbortSignal): Promise<Basics> {
  const [row] = await basics.query<{
    version: string;
    number: number;
    is_read_only: boolean;
    database_bytes: number;
    transaction_age: number;
    settings: Record<string, string>;
    shared_buffers: string;
  }>(sql, { settingNames: `{${settingNames.join(',')}}` }, signal);
  if (!row) throw new Error('the database said nothing of itself');
  return {
    version: row.version,
    versionNumber: row.number,
    isReadOnly: row.is_read_only,
    databaseBytes: row.database_bytes,
    transactionAge: row.transaction_age,
    settings: { ...row.settings, shared_buffers_bytes: row.shared_buffers },
  };
}

/** The database's time. */
export async function readClock(sql: Sql, signal?: AbortSignal): Promise<number> {
  const [row] = await sql.query<{ now: number }>(
    'select extract(epoch from clock_timestamp())::float8 * 1000 as now',
    [],
    signal,
  );
  if (!row) throw new Error('the database did not tell the time');
  return row.now;
}

/** The applied migrations, and those that this version knows. */
export async function readMigrations(sql: Sql, signal?: AbortSignal): Promise<DatabaseFacts['migrations']> {
  const rows = await sql.query<{ name: string }>(
    'select name from leasehold_migrations order by id',
    [],
    signal,
  );
  return { applied: rows.map(({ name }) => name), known: migrations.map(({ name }) => name) };
}

const tables = `
select relname, n_live_tup::float8 as live, n_dead_tup::float8 as dead,
  greatest(last_vacuum, last_autovacuum) as vacuumed_at,
  pg_table_size(relid)::float8 as table_bytes, pg_indexes_size(relid)::float8 as index_bytes
from pg_stat_user_tables where schemaname = current_schema() order by n_dead_tup desc, relname limit 50`;

/** The tables, those with most dead tuples first. */
export async function readTables(sql: Sql, signal?: AbortSignal): Promise<TableFacts[]> {
  const rows = await sql.query<{
    relname: string;
    live: number;
    dead: number;
    vacuumed_at: string | null;
    table_bytes: number;
    index_bytes: number;
  }>(tables, [], signal);
  return rows.map((row) => ({
    table: row.relname,
    liveRows: row.live,
    deadRows: row.dead,
    vacuumedAtMs: timeMs(row.vacuumed_at),
    tableBytes: row.table_bytes,
    indexBytes: row.index_bytes,
  }));
}

// A role without monitoring rights sees little of other users' sessions beyond their existence.
const sessionCounts = `
select count(*)::int as connections,
  (count(*) filter (where application_name like 'leasehold%'))::int as own,
  (count(*) filter (where query = '<insufficient privilege>'))::int as hidden
from pg_stat_activity where datname is not null`;

const oldest = `
select pid, coalesce(application_name, '') as application, coalesce(usename, '') as "user",
  coalesce(state, '') as state,
  extract(epoch from clock_timestamp() - xact_start)::float8 * 1000 as "openMs"
from pg_stat_activity
where xact_start is not null and pid <> pg_backend_pid() and backend_type in ('client backend', 'walsender')
  and datname = current_database()
order by xact_start limit 5`;

/** The connections, and the longest open transactions. */
export async function readSessions(sql: Sql, signal?: AbortSignal): Promise<SessionsFacts> {
  const [counts] = await sql.query<Omit<SessionsFacts, 'oldest'>>(sessionCounts, [], signal);
  if (!counts) throw new Error('the database did not count its connections');
  return { ...counts, oldest: await sql.query(oldest, [], signal) };
}

const slots = `
select slot_name as name, active as "isActive", greatest(age(xmin), age(catalog_xmin)) as "xminAge",
  case when not pg_is_in_recovery()
    then pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 end as "keptBytes"
from pg_replication_slots order by slot_name limit 50`;

export const readSlots = (sql: Sql, signal?: AbortSignal): Promise<SlotFacts[]> =>
  sql.query<SlotFacts>(slots, [], signal);

const prepared = `
select gid, extract(epoch from clock_timestamp() - prepared)::float8 * 1000 as "openMs"
from pg_prepared_xacts where database = current_database() order by prepared limit 50`;

export const readPrepared = (sql: Sql, signal?: AbortSignal): Promise<{ gid: string; openMs: number }[]> =>
  sql.query<{ gid: string; openMs: number }>(prepared, [], signal);

/** How far the servers are behind. */
export async function readService(sql: EntitySql, signal?: AbortSignal): Promise<ServiceFacts> {
  const reading = select(
    sql,
    (tables) =>
      tables.selectNoFrom((eb) => [
        eb
          .selectFrom('pulse')
          .select(raw<number>`extract(epoch from clock_timestamp() - alive_at)::float8 * 1000`.as('ms'))
          .where('pulse_id', '=', 1)
          .as('pulse_age'),
        eb
          .selectFrom('live_jobs')
          .select(
            raw<number>`greatest(extract(epoch from clock_timestamp() - check_at)::float8 * 1000, 0)`.as(
              'ms',
            ),
          )
          .where('check_at', '<', raw<Date>`'infinity'`)
          .orderBy('check_at')
          .limit(1)
          .as('overdue'),
        eb
          .selectFrom('outages')
          .select(raw<number>`count(*)::int`.as('count'))
          .where('next_lease_id', 'is not', null)
          .as('open_outages'),
      ]),
    signal,
  );
  // Sent together: on the embedded engine a later statement would wait for those of all other parts.
  const [[row], { used, leased }] = await Promise.all([reading, auditCapacity(sql)]);
  return {
    pulseAgeMs: row?.pulse_age ?? null,
    overdueMs: row?.overdue ?? 0,
    openOutages: row?.open_outages ?? 0,
    usedUnits: used,
    leasedUnits: leased,
  };
}

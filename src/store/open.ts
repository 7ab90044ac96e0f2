import type { EventEmitter } from 'node:events';
import { Migrator } from '@mikro-orm/migrations';
import type { Config } from '../config.ts';
import type { Log } from '../lib/log.ts';
import { ConnectionWatch } from './connection/connection-watch.ts';
import type { EntityConnection } from './connection/entity-driver.ts';
import { PreparingClient } from './connection/prepared-client.ts';
import { sessionOptions, sessionStatements } from './connection/session-settings.ts';
import { Database, type DatabaseOptions, type DatabaseParts } from './database.ts';
import { openEmbedded } from './embedded/client.ts';
import { migrations } from './migrations/index.ts';
import { contractViewNames } from './migrations/views/contract-views.ts';
import { entities } from './schema/entities.ts';

/**
 * Opens the database that the options name. Nothing is created or changed but the embedded one's directory.
 *
 * Both engines are reached through the same driver: the embedded one over a stream in place of a socket, so that a
 * statement returns the same values, and fails with the same errors, on either.
 */
export function openDatabase(options: DatabaseOptions): Promise<Database> {
  return options.url === undefined ? openEmbeddedDatabase(options) : openPostgres(options.url, options);
}

/** Opens the database that the settings name. */
export const openConfigured = (
  { databaseUrl, dataDir, poolMax }: Pick<Config, 'databaseUrl' | 'dataDir' | 'poolMax'>,
  log: Log,
): Promise<Database> => openDatabase({ url: databaseUrl, dataDir, poolMax, log });

async function openPostgres(url: string, options: DatabaseOptions): Promise<Database> {
  const watch = new ConnectionWatch({ connectionString: url });
  const orm = await initOrm(options, {
    clientUrl: url,
    pool: { min: 0, max: options.poolMax },
    driverOptions: {
      Client: PreparingClient,
      onPoolCreated: (pool: EventEmitter) => watch.attach(pool),
      // The address may carry options of its own; ours come after them.
      options: `${new URL(url).searchParams.get('options') ?? ''} ${sessionOptions()}`.trim(),
      application_name: 'leasehold',
      connectionTimeoutMillis: 5_000,
      // A little more than the server's own limit: for a server that hangs and cannot keep it.
      query_timeout: 35_000,
      keepAlive: true,
      // Statements are sent without waiting for the answers to those before them.
      pipeline: true,
    },
  });
  return opened({
    engine: 'postgresql',
    orm,
    closeEngine: async () => {},
    closeEnding: () => watch.closeEnding(),
    lost: new Promise(() => {}),
  });
}

async function openEmbeddedDatabase(options: DatabaseOptions): Promise<Database> {
  // The database starts in its thread while the modules that talk to it are still being loaded here.
  const opening = openEmbedded(options.dataDir, { sessionSql: sessionStatements() });
  opening.catch(() => {});
  await import('@mikro-orm/postgresql');
  const embedded = await opening;
  try {
    const { driverOptions, ...place } = embedded.ormOptions;
    const orm = await initOrm(options, {
      ...place,
      // Statements are handed over without waiting for the answers to those before them.
      driverOptions: { ...driverOptions, Client: PreparingClient, pipeline: true },
    });
    return opened({
      engine: 'embedded',
      orm,
      closeEngine: () => embedded.close(),
      lost: embedded.lost,
    });
  } catch (error) {
    await embedded.close();
    throw error;
  }
}

/** From now on what MikroORM runs goes through the database as well. */
function opened(parts: DatabaseParts): Database {
  const database = new Database(parts);
  (parts.orm.em.getConnection() as unknown as EntityConnection).attach(database);
  return database;
}

async function initOrm({ log }: DatabaseOptions, place: object) {
  const { MikroORM } = await import('@mikro-orm/postgresql');
  const { EntityDriver } = await import('./connection/entity-driver.ts');
  return MikroORM.init({
    driver: EntityDriver,
    entities,
    extensions: [Migrator],
    migrations: {
      tableName: 'leasehold_migrations',
      migrationsList: [...migrations],
      snapshot: false,
      silent: true,
    },
    // Its parts come and go, which an entity cannot say; see `store/sql/events/partitions.ts`.
    ensureDatabase: false,
    // Views are for people; nothing here is read through them. A table in parts is not what the entity says.
    schemaGenerator: { skipTables: ['job_events'], skipViews: [...contractViewNames] },
    timezone: 'Z',
    logger: (message: string) => log.debug(message),
    ...place,
  });
}

import type { EventEmitter } from 'node:events';
import { Migrator } from '@mikro-orm/migrations';
import type { Config } from '../config.ts';
import type { Log } from '../lib/log.ts';
import { ConnectionWatch } from './connection/connection-watch.ts';
import type { EntityConnection } from './connection/entity-driver.ts';
import { PreparedClient } from './connection/prepared-client.ts';
import { sessionOptions, sessionStatements } from './connection/session-settings.ts';
import { Database, type DatabaseOptions, type DatabaseParts } from './database.ts';
import { openEmbedded } from './embedded/client.ts';
import { migrations } from './migrations/index.ts';
import { contractViewNames } from './schema/contract-views.ts';
import { entities } from './schema/entities.ts';

/**
 * Opens the database that the options name. It creates or changes nothing except the embedded one's
 * directory.
 *
 * Both engines use the same driver: the embedded one over a stream instead of a socket. A statement therefore
 * returns the same values and fails with the same errors on either.
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
      Client: PreparedClient,
      onPoolCreated: (pool: EventEmitter) => watch.attach(pool),
      // The address may carry options of its own; these override them.
      options: `${new URL(url).searchParams.get('options') ?? ''} ${sessionOptions()}`.trim(),
      application_name: 'leasehold',
      connectionTimeoutMillis: 5_000,
      // Slightly above the server's own limit, for a server that hangs and cannot enforce it.
      query_timeout: 35_000,
      keepAlive: true,
      // Sends statements without waiting for the answers to earlier ones.
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
  // The database starts in its thread while this thread loads the driver's modules.
  const opening = openEmbedded(options.dataDir, { sessionSql: sessionStatements() });
  opening.catch(() => {});
  await import('@mikro-orm/postgresql');
  const embedded = await opening;
  try {
    const { driverOptions, ...place } = embedded.ormOptions;
    const orm = await initOrm(options, {
      ...place,
      // Sends statements without waiting for the answers to earlier ones.
      driverOptions: { ...driverOptions, Client: PreparedClient, pipeline: true },
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

/** From here on, MikroORM's statements go through the database as well. */
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
    // Opening creates nothing, so MikroORM must not create a missing database.
    ensureDatabase: false,
    // The server reads nothing through the views. `job_events` has partitions, which an entity cannot
    // describe; see `store/sql/events/partitions.ts`.
    schemaGenerator: {
      skipTables: ['job_events'],
      skipViews: [...contractViewNames],
      // Migrations write triggers; the entities do not know them.
      ignoreTriggers: true,
    },
    timezone: 'Z',
    logger: (message: string) => log.debug(message),
    ...place,
  });
}

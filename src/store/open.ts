import { Migrator } from '@mikro-orm/migrations';
import type { MikroORM as PostgresOrm } from '@mikro-orm/postgresql';
import { Database, type DatabaseOptions } from './database.ts';
import { entities } from './entities.ts';
import { migrations } from './migrations/index.ts';
import { sessionOptions } from './session.ts';

/** Opens the database that the options name. Nothing is created or changed but the embedded one's directory. */
export function openDatabase(options: DatabaseOptions): Promise<Database> {
  return options.url === undefined ? openEmbeddedDatabase(options) : openPostgres(options.url, options);
}

const common = ({ log }: DatabaseOptions) => ({
  entities,
  extensions: [Migrator],
  migrations: {
    tableName: 'leasehold_migrations',
    migrationsList: migrations,
    snapshot: false,
    silent: true,
  },
  ensureDatabase: false,
  timezone: 'Z',
  logger: (message: string) => log.debug(message),
});

async function openPostgres(url: string, options: DatabaseOptions): Promise<Database> {
  const { MikroORM } = await import('@mikro-orm/postgresql');
  const orm = await MikroORM.init({
    ...common(options),
    clientUrl: url,
    pool: { min: 0, max: options.poolMax },
    driverOptions: {
      options: sessionOptions(),
      application_name: 'leasehold',
      connectionTimeoutMillis: 5_000,
      keepAlive: true,
    },
  });
  return new Database('postgresql', orm, async () => {});
}

async function openEmbeddedDatabase(options: DatabaseOptions): Promise<Database> {
  const { MikroORM } = await import('@mikro-orm/pglite');
  const orm = await MikroORM.init({ ...common(options), dbName: 'leasehold' });
  return new Database('embedded', orm as unknown as PostgresOrm, async () => {});
}

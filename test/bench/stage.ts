import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { temporaryFolder } from '../support/cleanup.ts';
import type { EngineName } from '../support/engines.ts';
import { startPostgres, type TestCluster } from '../support/postgres.ts';
import type { FloorPlace } from './load/floor.ts';
import { familyCpuMs } from './proc.ts';
import { type Program, ServerProcess } from './server-process.ts';

/** An empty place for jobs, which one server or the floor may open. */
export interface Store {
  env: Record<string, string>;
  place: FloorPlace;
  /** What autovacuum would have done by the time a queue has grown long; the embedded engine does it by itself. */
  vacuum(): Promise<void>;
  /** Runs a statement as somebody else; only where there is a server that others can reach. */
  query(sql: string): Promise<string>;
  /** What was done to rows of unfinished jobs so far; undefined where nobody counts. Up to a second behind. */
  updates(): Promise<Updates | undefined>;
}

export interface Updates {
  all: number;
  /** Those that changed no index: HOT. */
  hot: number;
}

const countUpdates = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'live_jobs'";

/** One engine, ready to give out empty stores. A PostgreSQL has its defaults, and flushes every commit to the disk. */
export class Stage {
  readonly engine: EngineName;
  readonly #cluster: TestCluster | undefined;

  private constructor(engine: EngineName, cluster: TestCluster | undefined) {
    this.engine = engine;
    this.#cluster = cluster;
  }

  static async open(engine: EngineName): Promise<Stage> {
    return new Stage(engine, engine === 'postgresql' ? await startPostgres() : undefined);
  }

  get title(): string {
    return this.#cluster ? `PostgreSQL ${this.#cluster.version}` : 'embedded';
  }

  async newStore(): Promise<Store> {
    const cluster = this.#cluster;
    if (!cluster) {
      const dataDir = join(await temporaryFolder('bench'), 'data');
      return {
        env: { LEASEHOLD_DATA_DIR: dataDir },
        place: { dataDir },
        vacuum: async () => {},
        query: () => Promise.reject(new Error('nobody but its server can open an embedded database')),
        updates: async () => undefined,
      };
    }
    const name = await cluster.createDatabase();
    const url = cluster.url(name);
    return {
      env: { DATABASE_URL: url },
      place: { url, dataDir: '' },
      vacuum: async () => void (await cluster.query('vacuum analyze', name)),
      query: (sql) => cluster.query(sql, name),
      async updates() {
        const [all = 0, hot = 0] = (await cluster.query(countUpdates, name)).split('|').map(Number);
        return { all, hot };
      },
    };
  }

  /** Processor time of the database so far; undefined where it is a part of the server. */
  databaseCpuMs(): number | undefined {
    const pid = this.#cluster?.pid;
    return pid === undefined ? undefined : familyCpuMs(pid);
  }

  async close(): Promise<void> {
    await this.#cluster?.stop();
  }
}

let profiles: Promise<string> | undefined;

/** Where profiles go. It stays when the run is over. */
export function profileFolder(): Promise<string> {
  profiles ??= mkdtemp(join(tmpdir(), 'leasehold-profiles-'));
  return profiles;
}

export async function startServer(
  store: Store,
  profileName: string | undefined,
  { unmetered, keys, program }: { unmetered?: boolean; keys?: boolean; program?: Program } = {},
): Promise<ServerProcess> {
  const profile =
    profileName === undefined ? undefined : { folder: await profileFolder(), name: profileName };
  return ServerProcess.start({ env: store.env, profile, unmetered, keys, program });
}

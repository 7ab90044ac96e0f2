/**
 * The engines that store tests run on, and fresh migrated databases on each of them.
 *
 * Migrating costs seconds, copying costs milliseconds: each engine migrates one database per run, and every database
 * handed out is a copy of it. Databases that a test did not close are closed and told of at the end of the run.
 */
import { cpSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createLog } from '../../src/lib/log.ts';
import type { Database, DatabaseOptions } from '../../src/store/database.ts';
import { temporaryFolder } from './cleanup.ts';
import { findPostgres, postgresVersion, sharedPostgres } from './postgres.ts';
import { noteNotRun } from './programs.ts';

export type EngineName = 'embedded' | 'postgresql';

/** A database that nobody has opened yet: for tests that start a server process on it. */
export interface TestStore {
  /** How `openDatabase` finds it. */
  options: DatabaseOptions;
  /** How a server process finds it. */
  env: Record<string, string>;
  /** Deletes it. */
  remove(): Promise<void>;
}

export interface TestDatabase extends TestStore {
  database: Database;
  /** Closes the database and deletes it; a second call does nothing. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface TestEngine {
  name: EngineName;
  /** A fresh database, migrated unless `empty` is asked for. */
  create(how?: { empty?: boolean }): Promise<TestStore>;
  /** A fresh migrated database, open. The options given replace those of `create`. */
  open(options?: Partial<DatabaseOptions>): Promise<TestDatabase>;
}

/** The one place that knows how a database is opened. Loaded late, so that tests without a store do not pay for it. */
async function openStore(options: DatabaseOptions): Promise<Database> {
  const { openDatabase } = await import('../../src/store/open.ts');
  return openDatabase(options);
}

async function migrateStore(options: DatabaseOptions): Promise<void> {
  const { migrate } = await import('../../src/store/migrate.ts');
  const database = await openStore(options);
  try {
    await migrate(database);
  } finally {
    await database.close();
  }
}

/** Tests ask for few connections each, because a cluster serves many databases at once. */
function located(place: { dataDir: string; url?: string }): DatabaseOptions {
  return { poolMax: 10, log: createLog({ level: 'silent', human: false }), ...place };
}

async function migrateEmbedded(): Promise<string> {
  const dataDir = join(await temporaryFolder('template'), 'data');
  await migrateStore(located({ dataDir }));
  return dataDir;
}

async function migratePostgres(): Promise<string> {
  const cluster = await sharedPostgres();
  const name = await cluster.createDatabase();
  await migrateStore(located({ url: cluster.url(name), dataDir: '' }));
  return name;
}

let embeddedTemplate: Promise<string> | undefined;
let postgresTemplate: Promise<string> | undefined;
const covered = new Set<EngineName>();
const notClosed = new Map<TestDatabase, string>();

async function createEmbedded(empty: boolean): Promise<TestStore> {
  const folder = await temporaryFolder('embedded');
  const dataDir = join(folder, 'data');
  if (!empty) {
    embeddedTemplate ??= migrateEmbedded();
    // A thousand small files: the synchronous copy runs natively and is ten times as fast as the asynchronous one.
    cpSync(await embeddedTemplate, dataDir, { recursive: true });
  }
  return {
    options: located({ dataDir }),
    env: { LEASEHOLD_DATA_DIR: dataDir, DATABASE_URL: '' },
    remove: () => rm(folder, { recursive: true, force: true, maxRetries: 5 }),
  };
}

async function createPostgres(empty: boolean): Promise<TestStore> {
  const cluster = await sharedPostgres();
  if (!empty) postgresTemplate ??= migratePostgres();
  const name = await cluster.createDatabase(empty ? undefined : await postgresTemplate);
  const url = cluster.url(name);
  return {
    options: located({ url, dataDir: '' }),
    env: { DATABASE_URL: url },
    remove: () => cluster.dropDatabase(name),
  };
}

/** The first line of the stack that is in a test file, which is where a forgotten database was opened. */
function placeOfCall(): string {
  const lines = new Error().stack?.split('\n') ?? [];
  return (lines.find((line) => line.includes('.test.')) ?? lines.at(-1) ?? '').trim().replace(/^at /, '');
}

function makeEngine(name: EngineName, createStore: (empty: boolean) => Promise<TestStore>): TestEngine {
  async function create({ empty = false } = {}): Promise<TestStore> {
    covered.add(name);
    return createStore(empty);
  }

  async function open(options: Partial<DatabaseOptions> = {}): Promise<TestDatabase> {
    const place = placeOfCall();
    const store = await create();
    const database = await openStore({ ...store.options, ...options });
    const close = async () => {
      if (!notClosed.delete(opened)) return;
      try {
        await database.close();
      } finally {
        await store.remove();
      }
    };
    const opened: TestDatabase = { ...store, database, close, [Symbol.asyncDispose]: close };
    notClosed.set(opened, place);
    return opened;
  }

  return { name, create, open };
}

const everyEngine: Record<EngineName, TestEngine> = {
  embedded: makeEngine('embedded', createEmbedded),
  postgresql: makeEngine('postgresql', createPostgres),
};

/** The engines that can be tested on this machine. */
export const engines: readonly EngineName[] = findPostgres() ? ['embedded', 'postgresql'] : ['embedded'];

/** A describe block for each engine, with the same tests in it. */
export function onEveryEngine(define: (engine: TestEngine) => void): void {
  if (!engines.includes('postgresql')) noteNotRun('postgresql', 'every test on PostgreSQL');
  for (const name of engines) describe(`on ${name}`, () => define(everyEngine[name]));
}

/** One line for people: on which engines this run really opened databases. */
export function coverage(): string {
  const bin = findPostgres();
  if (covered.size === 0) return 'engines covered: none (no test that ran needs a database)';
  if (!bin) {
    return 'engines covered: embedded only (no PostgreSQL found; set LEASEHOLD_TEST_PG_BIN to its bin directory)';
  }
  const names = engines.filter((name) => covered.has(name));
  return `engines covered: ${names.map((name) => (name === 'embedded' ? name : `${name} ${postgresVersion(bin)}`)).join(', ')}`;
}

/** Closes what tests left open, and says where each was opened. */
export async function closeForgotten(): Promise<string[]> {
  const forgotten = [...notClosed];
  await Promise.allSettled(forgotten.map(([database]) => database.close()));
  return forgotten.map(([, place]) => `a database was opened and never closed: ${place}`);
}

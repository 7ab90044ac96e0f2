import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { MikroORM } from '@mikro-orm/postgresql';
import { CompiledQuery, type Kysely } from 'kysely';
import { type EmbeddedDatabase, openEmbedded } from '../../src/store/embedded/client.ts';

export type Row = Record<string, unknown>;

/** A directory that exists until `remove`. */
export function temporaryDirectory(): { dir: string; remove(): void } {
  const dir = mkdtempSync(join(tmpdir(), 'leasehold-embedded-'));
  return { dir, remove: () => rmSync(dir, { recursive: true, force: true }) };
}

export interface Connection {
  kysely: Kysely<unknown>;
  close(): Promise<void>;
}

export async function connect(options: object): Promise<Connection> {
  const orm = await MikroORM.init({ entities: [], discovery: { warnWhenNoEntities: false }, ...options });
  return {
    kysely: orm.em.getKysely() as Kysely<unknown>,
    close: () => orm.close(),
  };
}

export async function rowsOf(
  kysely: Kysely<unknown>,
  sql: string,
  parameters: unknown[] = [],
): Promise<Row[]> {
  const { rows } = await kysely.executeQuery<Row>(CompiledQuery.raw(sql, parameters));
  return rows;
}

/** Opens, hands over, and closes again whatever happens. */
export async function withDatabase<T>(
  dir: string,
  use: (kysely: Kysely<unknown>, database: EmbeddedDatabase) => Promise<T>,
): Promise<T> {
  await using database = await openEmbedded(dir);
  const { kysely, close } = await connect(database.ormOptions);
  try {
    return await use(kysely, database);
  } finally {
    await close();
  }
}

export interface Child {
  process: ChildProcessByStdio<Writable, Readable, Readable>;
  lines: AsyncIterableIterator<string>;
  errors: string[];
  exited: Promise<unknown>;
}

/** Starts a program from `fixtures/` as a process of its own. */
export function startFixture(name: string, ...parameters: string[]): Child {
  const path = fileURLToPath(new URL(`./fixtures/${name}.ts`, import.meta.url));
  const process_ = spawn(process.execPath, [path, ...parameters], { stdio: ['pipe', 'pipe', 'pipe'] });
  const errors: string[] = [];
  process_.stderr.on('data', (data) => errors.push(String(data)));
  return {
    process: process_,
    lines: createInterface(process_.stdout)[Symbol.asyncIterator](),
    errors,
    exited: once(process_, 'close'),
  };
}

export async function nextLine(child: Child): Promise<string> {
  const { value, done } = await child.lines.next();
  if (done) throw new Error(`the child ended instead of saying anything: ${child.errors.join('')}`);
  return value;
}

export async function killed(child: Child): Promise<void> {
  child.process.kill('SIGKILL');
  await child.exited;
}

export async function rejection(promise: Promise<unknown>): Promise<Error & Row> {
  try {
    await promise;
  } catch (error) {
    return error as Error & Row;
  }
  throw new Error('it did not reject');
}

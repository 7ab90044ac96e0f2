import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pid } from 'node:process';
import type { DatabaseSync } from 'node:sqlite';

/**
 * The right to be the only process that touches a data directory.
 *
 * The lock is an exclusive transaction on `lock.db`, which SQLite turns into a lock the kernel keeps for this process
 * and drops when the process is gone, however it went. Nothing has to be cleaned up after a kill, and a reused pid, a
 * zombie or a second container with the same pid cannot pass for the holder. It begins in `acquireDirectoryLock` and
 * ends with `release`, which may be called any number of times.
 *
 * Such locks have one trap: a process loses all its locks on a file as soon as it closes any descriptor of that file.
 * So nothing in this process may open `lock.db` except SQLite, which knows of the trap.
 */
export interface DirectoryLock {
  release(): void;
}

/** What `holder.json` says. It informs people; nothing is decided by it. */
interface Holder {
  pid: number;
  host: string;
  since: string;
}

/** Another process, or another opener in this one, holds the directory. The holder is undefined where it is unknown. */
export class DirectoryHeldError extends Error {
  readonly dir: string;
  readonly pid: number | undefined;
  readonly host: string | undefined;
  readonly since: string | undefined;

  constructor(dir: string, holder: Holder | undefined) {
    const who = holder
      ? `process ${holder.pid} on ${holder.host} since ${holder.since}`
      : 'another process (holder unknown: its holder.json is missing or unreadable)';
    super(
      `The data directory ${dir} is in use by ${who}; ` +
        'stop that server, give this one another LEASEHOLD_DATA_DIR, or set DATABASE_URL to share one database.',
    );
    this.name = 'DirectoryHeldError';
    this.dir = dir;
    this.pid = holder?.pid;
    this.host = holder?.host;
    this.since = holder?.since;
  }
}

/** The directory cannot be created, or not be written to. */
export class DirectoryUnusableError extends Error {
  readonly dir: string;

  constructor(dir: string, cause: unknown) {
    super(
      `The data directory ${dir} cannot be used (${reasonOf(cause)}); ` +
        'make it writable for this user or set LEASEHOLD_DATA_DIR to one that is.',
      { cause },
    );
    this.name = 'DirectoryUnusableError';
    this.dir = dir;
  }
}

/** Takes the lock at once or throws; it never waits, because whoever holds it means to keep it. */
export function acquireDirectoryLock(dir: string): DirectoryLock {
  let database: DatabaseSync | undefined;
  try {
    makeDirectory(resolve(dir));
    database = new (sqlite().DatabaseSync)(join(dir, 'lock.db'), { timeout: 0 });
    database.exec('begin exclusive');
    writeHolder(dir);
  } catch (error) {
    if (database?.isOpen) database.close();
    throw isBusy(error)
      ? new DirectoryHeldError(dir, readHolder(dir))
      : new DirectoryUnusableError(dir, error);
  }
  return { release: releaseOnce(database, dir) };
}

/**
 * Makes a directory and those above it that are missing. Node's own recursive form never returns where a file system
 * has no room for directories and says that they do not exist, as /proc does.
 */
function makeDirectory(dir: string): void {
  try {
    mkdirSync(dir, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    const parent = dirname(dir);
    if (code !== 'ENOENT' || existsSync(parent)) throw error;
    makeDirectory(parent);
    // From the top again: another process may have made it meanwhile.
    makeDirectory(dir);
  }
}

function releaseOnce(database: DatabaseSync, dir: string): () => void {
  return () => {
    if (!database.isOpen) return;
    // The note goes first: removed after the lock, it could be the note of the next holder.
    rmSync(join(dir, 'holder.json'), { force: true });
    database.close();
  };
}

/** Written aside and renamed, so that whoever is refused reads all of it or the one before it. */
function writeHolder(dir: string): void {
  const holder: Holder = { pid, host: hostname(), since: new Date().toISOString() };
  const aside = join(dir, 'holder.json.tmp');
  writeFileSync(aside, `${JSON.stringify(holder)}\n`, { mode: 0o600 });
  renameSync(aside, join(dir, 'holder.json'));
}

function readHolder(dir: string): Holder | undefined {
  try {
    const holder: Partial<Holder> | null = JSON.parse(readFileSync(join(dir, 'holder.json'), 'utf8'));
    const { pid, host, since } = holder ?? {};
    if (typeof pid !== 'number' || typeof host !== 'string' || typeof since !== 'string') return undefined;
    return { pid, host, since };
  } catch {
    return undefined;
  }
}

const SQLITE_BUSY = 5;

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_BUSY;
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

let loaded: typeof import('node:sqlite') | undefined;

/**
 * Loads SQLite without the warning that it is experimental, which would be the first thing a user sees. Every other
 * warning, even one raised at the same moment, passes.
 */
function sqlite(): typeof import('node:sqlite') {
  if (loaded) return loaded;
  const emitWarning = process.emitWarning;
  process.emitWarning = ((...args: Parameters<typeof emitWarning>) => {
    if (!String(args[0]).startsWith('SQLite is an experimental feature')) emitWarning.apply(process, args);
  }) as typeof emitWarning;
  try {
    loaded = process.getBuiltinModule('node:sqlite');
  } finally {
    process.emitWarning = emitWarning;
  }
  return loaded;
}

import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pid } from 'node:process';
import { type KernelLock, tryLock } from '../../lib/file-lock.ts';

/**
 * The exclusive right of one process to use a data directory.
 *
 * The kernel holds the lock on `lock.db`, which nothing else may open. It begins in `acquireDirectoryLock`
 * and ends with `release`, which may be called any number of times, or when the process ends in any way.
 */
export type DirectoryLock = KernelLock;

/** Content of `holder.json`. It informs people; no decision depends on it. */
interface Holder {
  pid: number;
  host: string;
  since: string;
}

/**
 * Another process, or another opener in this process, holds the directory. The holder is undefined if
 * unknown.
 */
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

/** The directory cannot be created or written. */
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

/** Takes the lock at once or throws. It never waits, because the holder keeps the lock while it runs. */
export function acquireDirectoryLock(dir: string): DirectoryLock {
  let lock: KernelLock | undefined;
  try {
    makeDirectory(resolve(dir));
    lock = tryLock(join(dir, 'lock.db'));
    if (lock) writeHolder(dir);
  } catch (error) {
    lock?.release();
    throw new DirectoryUnusableError(dir, error);
  }
  if (!lock) throw new DirectoryHeldError(dir, readHolder(dir));
  return { release: releaseOnce(lock, dir) };
}

/**
 * Creates a directory and its missing parents. Node's own recursive form never returns on a file system that
 * cannot create directories and reports ENOENT for them, as /proc does.
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
    // Starts again from the top: another process may have created it meanwhile.
    makeDirectory(dir);
  }
}

function releaseOnce(lock: KernelLock, dir: string): () => void {
  let isReleased = false;
  return () => {
    if (isReleased) return;
    isReleased = true;
    // Removes the file before the lock: afterwards it could be the file of the next holder.
    rmSync(join(dir, 'holder.json'), { force: true });
    lock.release();
  };
}

/**
 * Writes to a temporary file and renames it, so that a refused process reads either this version or the
 * previous.
 */
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

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pid } from 'node:process';
import { type KernelLock, tryLock } from '../../lib/file-lock.ts';

/**
 * The right to be the only process that touches a data directory.
 *
 * The lock is one of the kernel on `lock.db`, which nothing else may open. It begins in `acquireDirectoryLock` and ends
 * with `release`, which may be called any number of times, or with the process, however it went.
 */
export type DirectoryLock = KernelLock;

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

function releaseOnce(lock: KernelLock, dir: string): () => void {
  let isReleased = false;
  return () => {
    if (isReleased) return;
    isReleased = true;
    // The note goes first: removed after the lock, it could be the note of the next holder.
    rmSync(join(dir, 'holder.json'), { force: true });
    lock.release();
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

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

import type { DatabaseSync } from 'node:sqlite';

/** An exclusive lock of this process on a file, until it releases the lock or ends. */
export interface KernelLock {
  /** May be called any number of times. */
  release(): void;
}

const SQLITE_BUSY = 5;

/**
 * Locks a file at once. Returns undefined if another process has locked it; throws if it cannot be opened.
 *
 * The lock is an exclusive transaction of SQLite. The kernel keeps it for this process, and drops it when the
 * process ends for any reason. Nothing has to be cleaned up after a kill, and a reused pid, a zombie or a
 * second container with the same pid cannot pass for the holder.
 *
 * Such locks have one trap: a process loses all its locks on a file as soon as it closes any descriptor of
 * that file. So code may open the file only through this function, because SQLite handles the trap.
 */
export function tryLock(file: string): KernelLock | undefined {
  let database: DatabaseSync | undefined;
  try {
    database = new (sqlite().DatabaseSync)(file, { timeout: 0 });
    database.exec('begin exclusive');
  } catch (error) {
    if (database?.isOpen) database.close();
    if (isBusy(error)) return undefined;
    throw error;
  }
  const held = database;
  return {
    release: () => {
      if (held.isOpen) held.close();
    },
  };
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_BUSY;
}

let loaded: typeof import('node:sqlite') | undefined;

/**
 * Loads SQLite without the warning that it is experimental, which would be the first output that a user sees.
 * Every other warning passes, even one raised at the same moment.
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

import type { DatabaseSync } from 'node:sqlite';

/** A file that this process alone has locked, until it releases it or is gone. */
export interface KernelLock {
  /** May be called any number of times. */
  release(): void;
}

const SQLITE_BUSY = 5;

/**
 * Locks a file at once, or answers with nothing where somebody else has it; throws where it cannot be opened.
 *
 * The lock is an exclusive transaction of SQLite, which makes it one that the kernel keeps for this process and drops
 * when the process is gone, however it went. Nothing has to be cleaned up after a kill, and a reused pid, a zombie or a
 * second container with the same pid cannot pass for the holder.
 *
 * Such locks have one trap: a process loses all its locks on a file as soon as it closes any descriptor of that file.
 * So nothing may open the file except through here, because SQLite knows of the trap.
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

import { type ChildProcess, spawn } from 'node:child_process';
import { ServerError } from '../client/http-client.ts';
import { stopTree } from './child-command.ts';
import type { FilesClient } from './files-client.ts';
import { isAlive, type ProcessId } from './process-tree.ts';

/** The `leasehold hook` subcommand that cleans up after a killed guard. */
export const watchdogCommand = 'after-guard';

/**
 * Remembers the last line that it read. At the end of its input it executes its arguments with that line,
 * unless the line `over` came before.
 */
const script = `known=
while IFS= read -r line; do
  if [ "$line" = over ]; then exit 0; fi
  known=$line
done
if [ -n "$known" ]; then exec "$@" "$known"; fi`;

export interface WatcherOptions {
  url: string;
  /** The owner that ends with the guard; undefined for an owner that is not the guard's own. */
  ownerId: string | undefined;
  graceMs: number;
  /** Called with the reason where the watchdog cannot run. */
  onFailure(error: Error): void;
}

/**
 * Outlives a guard that is killed with SIGKILL, and stops its command, which would otherwise continue on
 * files without heartbeats.
 *
 * Lifecycle: from `start` to `dismiss` it waits on a pipe, whose other end the kernel closes with the guard,
 * however the guard ends. While it waits it is a shell, which starts at once and needs little memory. It
 * becomes `leasehold` only after the guard is gone. It has a session of its own, so that signals to the
 * guard's terminal or process group do not end it.
 */
export class GuardWatchdog {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static start({ url, ownerId, graceMs, onFailure }: WatcherOptions): GuardWatchdog {
    const [, main = ''] = process.argv;
    const owner = ownerId === undefined ? [] : [`--owner=${ownerId}`];
    const flags = [`--url=${url}`, `--grace-ms=${graceMs}`, ...owner];
    const after = [process.execPath, ...process.execArgv, main, 'hook', watchdogCommand, ...flags, '--'];
    const child = spawn('/bin/sh', ['-c', script, 'leasehold', ...after], {
      detached: true,
      stdio: ['pipe', 'ignore', 'inherit'],
      cwd: '/',
    });
    child.on('error', onFailure);
    // The watchdog was killed. There is no reader, and the command continues unwatched.
    child.stdin?.on('error', () => {});
    child.unref();
    return new GuardWatchdog(child);
  }

  /** Names the process to stop if the guard is killed. */
  watch({ pid, started }: ProcessId): void {
    this.#child.stdin?.write(`${pid} ${started}\n`);
  }

  /** Ends the watchdog: there is no process left to stop. */
  dismiss(): void {
    this.#child.stdin?.end('over\n');
  }
}

/**
 * The watchdog's work after its guard was killed: stop the command first, and only then release its files.
 */
export async function cleanUpAfterGuard(
  api: FilesClient,
  command: ProcessId,
  { ownerId, graceMs, say }: { ownerId: string | undefined; graceMs: number; say(text: string): void },
): Promise<void> {
  if (isAlive(command)) {
    say('the guard was killed; stopping its command');
    await stopTree(command, graceMs);
  }
  if (ownerId === undefined) return;
  try {
    await api.end(ownerId);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    say(`could not give the files back, they come free by themselves within a minute: ${error.message}`);
  }
}

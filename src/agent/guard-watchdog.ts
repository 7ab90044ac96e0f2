import { type ChildProcess, spawn } from 'node:child_process';
import { ServerError } from '../client/http-client.ts';
import { stopTree } from './child-command.ts';
import type { FilesApi } from './files-client.ts';
import { isAlive, type ProcessId } from './process-tree.ts';

/** How `leasehold hook` calls what is left to be done after a guard that was killed. */
export const watchdogCommand = 'after-guard';

/** Remembers the last line it was told. Where the other end is gone and nothing is over, it becomes what was handed to it. */
const script = `known=
while IFS= read -r line; do
  if [ "$line" = over ]; then exit 0; fi
  known=$line
done
if [ -n "$known" ]; then exec "$@" "$known"; fi`;

export interface WatcherOptions {
  url: string;
  /** The owner that ends with the guard; left out where it is somebody else's. */
  ownerId: string | undefined;
  graceMs: number;
  /** The guard is not watched over, and why. */
  onFailure(error: Error): void;
}

/**
 * Outlives a guard that is killed outright, and stops its command then, which would run on with files that nobody keeps.
 *
 * From `start` to `dismiss` it waits on a pipe whose other end the kernel closes with the guard, however that goes. While
 * it waits it is a shell, which is there at once and takes next to no memory; only when the guard is gone it becomes
 * `leasehold`. It has a session of its own, so that what ends the guard's terminal or its process group does not end it.
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
    // Somebody has killed it: then there is nobody to be told, and the command goes on as it is.
    child.stdin?.on('error', () => {});
    child.unref();
    return new GuardWatchdog(child);
  }

  /** What it is to stop, should it come to that. */
  watch({ pid, started }: ProcessId): void {
    this.#child.stdin?.write(`${pid} ${started}\n`);
  }

  /** Nothing is left to be stopped. */
  dismiss(): void {
    this.#child.stdin?.end('over\n');
  }
}

/** What a watcher does when its guard was killed: stops the command, and only then gives its files to others. */
export async function cleanUpAfterGuard(
  api: FilesApi,
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

import { hostname } from 'node:os';
import { basename } from 'node:path';
import { ServerError } from '../client/http-client.ts';
import { acquire } from './acquire-and-wait.ts';
import { Command, codeOfSignal, type ForwardedSignal, forwardedSignals } from './child-command.ts';
import { branchOf, type FileKey } from './file-key.ts';
import type { AcquireRequest, FileLease, FilesClient } from './files-client.ts';
import { GuardWatchdog } from './guard-watchdog.ts';
import { Keepalive, type Loss } from './keepalive.ts';
import { contendedWords, haltedWords } from './messages.ts';
import type { ProcessId } from './process-tree.ts';

/** What a guard does where no server answers: continue without leases, or fail. */
export type OnUnreachable = 'allow' | 'deny';

/** Exit codes of a guard where they differ from its command's. */
export const guardCodes = { refused: 1, unreachable: 69, halted: 75, lost: 76 } as const;

/** The most time before the expiry at which a silent server counts as lost. */
const leadMaxMs = 20_000;

/** The environment variable that names the owner. A guard sets it for its command. */
export const ownerVariable = 'LEASEHOLD_OWNER';

export interface GuardOptions {
  api: FilesClient;
  ownerId: string;
  /** The owner was created for this guard, and ends with it. */
  isOwn: boolean;
  /** The caller whose contentions and halts apply, where the owner was created for this guard. */
  callerId?: string;
  files: readonly FileKey[];
  command: readonly string[];
  onUnreachable: OnUnreachable;
  /** The time between SIGTERM and SIGKILL, where the guard stops the command. */
  graceMs: number;
  /** Prints a message for people. */
  say(text: string): void;
}

/**
 * Runs a command while its files are leased.
 *
 * Guarantees:
 * - The command does not run before the files are granted, unless no server answers and `onUnreachable` is
 *   `allow`.
 * - The guard stops the command when the leases are lost. A loss that the server has not reported counts only
 *   where `onUnreachable` is `deny`.
 * - If the guard itself is killed, its watchdog stops the command.
 * - Files that the owner held before stay with it, because the session that the owner names still works on
 *   them.
 * - An owner of the guard's own always ends with it. A halt belongs to its caller, and stays.
 *
 * Lifecycle: `run` acquires the files, waits out contentions, renews the leases while the command runs, and
 * releases them when it has ended. It returns the exit code.
 */
export class Guard {
  readonly #options: GuardOptions;
  readonly #keepalive: Keepalive;
  /** Ends the wait for files; its reason is the exit code. */
  readonly #givingUp = new AbortController();
  #leases: FileLease[] = [];
  #command: Command | undefined;
  /** Another owner holds one of the files. That stays known if the server becomes unreachable later. */
  #wasDenied = false;
  #isLost = false;

  constructor(options: GuardOptions) {
    const { api, ownerId, isOwn, onUnreachable, graceMs, say } = options;
    this.#options = options;
    const on = { onLost: (loss: Loss) => this.#lose(loss), onNotice: say };
    // A command that has to be stopped must have ended before another owner may be granted its files.
    const leadMs = onUnreachable === 'deny' ? Math.min(graceMs, leadMaxMs) : 0;
    this.#keepalive = new Keepalive(api, ownerId, on, { isAtWork: !isOwn, leadMs });
  }

  async run(): Promise<number> {
    const take = (signal: NodeJS.Signals) => this.#onSignal(signal as ForwardedSignal);
    for (const signal of forwardedSignals) process.on(signal, take);
    try {
      return (await this.#acquireAll()) ?? (await this.#runCommand());
    } finally {
      this.#keepalive.stop();
      for (const signal of forwardedSignals) process.off(signal, take);
    }
  }

  /** Returns an exit code if the command must not run. */
  async #acquireAll(): Promise<number | undefined> {
    const { api, ownerId, isOwn, onUnreachable, say } = this.#options;
    try {
      const before = isOwn ? [] : await api.leases({ owner_id: ownerId });
      const wasHeld = ({ repository, path }: FileLease) =>
        before.some((lease) => lease.repository === repository && lease.path === path);
      // All guards acquire repositories in the same order, so that they do not wait for each other in a
      // circle.
      for (const request of requestsFor(this.#options)) {
        const granted = await this.#acquire(request);
        if (typeof granted === 'number') {
          await this.#release('ENDED');
          return granted;
        }
        this.#leases.push(...granted.filter((lease) => !wasHeld(lease)));
      }
      return undefined;
    } catch (error) {
      if (this.#givingUp.signal.aborted) {
        await this.#release('ENDED');
        return this.#givingUp.signal.reason as number;
      }
      if (!(error instanceof ServerError)) throw error;
      if (error.isUnreachable && onUnreachable === 'allow' && !this.#wasDenied) {
        say(`${error.message}; running the command without a lease`);
        return undefined;
      }
      say(`${error.message}; the command is not run`);
      await this.#release('ENDED');
      return error.isUnreachable ? guardCodes.unreachable : guardCodes.refused;
    }
  }

  async #acquire(request: AcquireRequest): Promise<FileLease[] | number> {
    const { api, say } = this.#options;
    let askedAtMs = 0;
    const asking = {
      acquire: (asked: AcquireRequest) => {
        askedAtMs = performance.now();
        return api.acquire(asked);
      },
    };
    const answer = await acquire(asking, request, {
      onContended: (contention) => {
        this.#wasDenied = true;
        this.#keepalive.start();
        say(contendedWords(contention));
      },
      signal: this.#givingUp.signal,
    });
    if (answer.outcome !== 'granted') {
      if (answer.outcome === 'halted') say(haltedWords(answer.blocker_report));
      return guardCodes.halted;
    }
    this.#keepalive.start();
    this.#keepalive.hold(answer.leases, askedAtMs);
    return answer.leases;
  }

  async #runCommand(): Promise<number> {
    const { command, ownerId, graceMs } = this.#options;
    const givingUp = this.#givingUp.signal;
    if (givingUp.aborted) {
      await this.#release('ENDED');
      return givingUp.reason as number;
    }
    const watcher = this.#keepalive.wasStarted ? this.#startWatcher() : undefined;
    try {
      const onProcess = (process: ProcessId) => watcher?.watch(process);
      this.#command = await Command.start(command, { [ownerVariable]: ownerId }, onProcess);
      // A signal arrived while the command was being started.
      if (givingUp.aborted) void this.#command.stop(graceMs);
      const code = await this.#command.ended;
      this.#keepalive.stop();
      await this.#release(code === 0 ? 'ENDED' : 'FAILED');
      return this.#isLost ? guardCodes.lost : code;
    } finally {
      watcher?.dismiss();
    }
  }

  #startWatcher(): GuardWatchdog {
    const { api, ownerId, isOwn, graceMs, say } = this.#options;
    const onFailure = ({ message }: Error) =>
      say(`if the guard is killed, its command will continue, because the watchdog cannot run: ${message}`);
    return GuardWatchdog.start({ url: api.url, ownerId: isOwn ? ownerId : undefined, graceMs, onFailure });
  }

  /** Leases that cannot be released are not renewed either, so they expire. */
  async #release(reason: 'ENDED' | 'FAILED'): Promise<void> {
    const { api, ownerId, isOwn, say } = this.#options;
    try {
      const leases = this.#leases.splice(0);
      const isEnding = isOwn && this.#keepalive.wasStarted;
      // Ending an owner releases all its files, so only a failure is reported before.
      if (leases.length > 0 && !(isEnding && reason === 'ENDED')) await api.release(ownerId, leases, reason);
      if (isEnding) await api.end(ownerId);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      say(`could not give the files back, they come free by themselves within a minute: ${error.message}`);
    }
  }

  #onSignal(signal: ForwardedSignal): void {
    if (this.#command) this.#command.forward(signal);
    else this.#givingUp.abort(codeOfSignal(signal));
  }

  #lose({ why, isCertain }: Loss): void {
    const { onUnreachable, graceMs, say } = this.#options;
    if (!isCertain && onUnreachable === 'allow') {
      say(`the lease must have run out: ${why}; the command goes on without it`);
      return;
    }
    this.#isLost = true;
    this.#keepalive.stop();
    if (this.#command) {
      say(`the lease is lost: ${why}; stopping the command`);
      void this.#command.stop(graceMs);
    } else {
      say(`the lease is lost: ${why}; the command is not run`);
      this.#givingUp.abort(guardCodes.lost);
    }
  }
}

/** One request per repository. */
function requestsFor({ files, ownerId, callerId, command }: GuardOptions): AcquireRequest[] {
  const repositories = Map.groupBy(files, ({ repository }) => repository);
  const agent = basename(command[0] ?? '').slice(0, 200);
  return [...repositories]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([repository, keys]) => ({
      owner_id: ownerId,
      ...(callerId === undefined ? {} : { caller_id: callerId }),
      repository,
      paths: keys.map(({ path }) => path),
      owner: { agent, host: hostname(), pid: process.pid, branch: branchOf(repository) ?? null },
    }));
}

import { hostname } from 'node:os';
import { basename } from 'node:path';
import { ServerError } from '../client/http-client.ts';
import { acquire } from './acquire-and-wait.ts';
import { Command, codeOfSignal, type ForwardedSignal, forwardedSignals } from './child-command.ts';
import { branchOf, type FileKey } from './file-key.ts';
import type { AcquireRequest, FileLease, FilesApi } from './files-client.ts';
import { GuardWatchdog } from './guard-watchdog.ts';
import { Keepalive, type Loss } from './keepalive.ts';
import { contendedWords, haltedWords } from './messages.ts';
import type { ProcessId } from './process-tree.ts';

/** What is done where no server answers: go on without leases, or not at all. */
export type OnUnreachable = 'allow' | 'deny';

/** How a guard ends where it does not end as its command did. */
export const guardCodes = { refused: 1, unreachable: 69, halted: 75, lost: 76 } as const;

/** A server that is silent for less is not given up. */
const leadMaxMs = 20_000;

/** The variable that names the owner; commands that run under a guard find theirs in it. */
export const ownerVariable = 'LEASEHOLD_OWNER';

export interface GuardOptions {
  api: FilesApi;
  ownerId: string;
  /** The owner was made for this guard, and ends with it. */
  isOwn: boolean;
  /** Who waits and halts, where the owner was made for this guard. */
  callerId?: string;
  files: readonly FileKey[];
  command: readonly string[];
  onUnreachable: OnUnreachable;
  /** Between SIGTERM and SIGKILL, where the command has to be stopped. */
  graceMs: number;
  /** Tells people one thing. */
  say(text: string): void;
}

/**
 * Runs a command while its files are leased: asks for them, waits a contention out, keeps the leases while the command
 * runs and gives them back when it has ended. Answers with the exit code. Until the files are granted nothing runs, and
 * once they are lost nothing runs any more; nor does it when the guard itself was killed, which its watcher sees to.
 *
 * Files that the owner held before stay with it, because the session that it names is still at work on them. An
 * owner of the guard's own always ends with it: a halt is its caller's, and stays.
 */
export class Guard {
  readonly #options: GuardOptions;
  readonly #keepalive: Keepalive;
  /** Ends the waiting for files; its reason is the exit code. */
  readonly #givingUp = new AbortController();
  #leases: FileLease[] = [];
  #command: Command | undefined;
  /** Somebody has one of the files: that much is known, whether a server answers later or not. */
  #wasDenied = false;
  #isLost = false;

  constructor(options: GuardOptions) {
    const { api, ownerId, isOwn, onUnreachable, graceMs, say } = options;
    this.#options = options;
    const on = { onLost: (loss: Loss) => this.#lose(loss), onNotice: say };
    // A command that has to be stopped is over by the time at which somebody else may be granted its files.
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

  /** Answers with an exit code where the command must not run. */
  async #acquireAll(): Promise<number | undefined> {
    const { api, ownerId, isOwn, onUnreachable, say } = this.#options;
    try {
      const before = isOwn ? [] : await api.leases({ owner_id: ownerId });
      const wasHeld = ({ repository, path }: FileLease) =>
        before.some((lease) => lease.repository === repository && lease.path === path);
      // In one order everywhere, so that guards of several repositories do not wait for each other in a circle.
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
      // It was told to end while it was being started.
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
      say(`should the guard be killed, its command will run on, because nobody can watch: ${message}`);
    return GuardWatchdog.start({ url: api.url, ownerId: isOwn ? ownerId : undefined, graceMs, onFailure });
  }

  /** What cannot be given back is not kept either: nobody heartbeats for it any more. */
  async #release(reason: 'ENDED' | 'FAILED'): Promise<void> {
    const { api, ownerId, isOwn, say } = this.#options;
    try {
      const leases = this.#leases.splice(0);
      const isEnding = isOwn && this.#keepalive.wasStarted;
      // Ending an owner gives everything back; that its work has failed is said before.
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

/** One request a repository. */
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

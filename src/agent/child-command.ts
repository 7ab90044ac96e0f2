import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { descendants, isAlive, lookUp, type ProcessId } from './process-tree.ts';

const lookMs = 50;

/** What is passed on to a command that runs. */
export const forwardedSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
export type ForwardedSignal = (typeof forwardedSignals)[number];

/** What a shell ends with where a signal has ended a command. */
export const codeOfSignal = (signal: NodeJS.Signals): number => 128 + constants.signals[signal];

/** Becomes the command when it is told to, and never where it is not. */
const gate = 'read -r go <&3 || exit 0; exec 3<&-; exec "$@"';

/** A command that runs with the input and the output of this process. */
export class Command {
  readonly #child: ChildProcess;
  /** Its process. */
  readonly self: ProcessId;
  /** Its exit code, or 128 and the number of the signal that has ended it. */
  readonly ended: Promise<number>;

  private constructor(child: ChildProcess) {
    this.#child = child;
    const pid = child.pid as number;
    // One that is over already is nobody that could be stopped.
    this.self = lookUp(pid) ?? { pid, started: '' };
    this.ended = once(child, 'exit').then(([code, signal]: (number | NodeJS.Signals | null)[]) =>
      typeof code === 'number' ? code : codeOfSignal(signal as NodeJS.Signals),
    );
  }

  /**
   * Whoever is to know of the command's process does so before the command runs. What cannot be run ends as in a shell,
   * which says why: with 126, or with 127 where there is no such command.
   */
  static async start(
    words: readonly string[],
    environment: Record<string, string>,
    onProcess: (process: ProcessId) => void,
  ): Promise<Command> {
    const child = spawn('/bin/sh', ['-c', gate, 'leasehold', ...words], {
      stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
      env: { ...process.env, ...environment },
    });
    await once(child, 'spawn');
    const command = new Command(child);
    onProcess(command.self);
    const go = child.stdio[3] as Writable;
    // It was killed before it could be told.
    go.on('error', () => {});
    go.end('go\n');
    return command;
  }

  /** On a terminal the keys that interrupt and quit reach the command by themselves; twice would mean more than once. */
  forward(signal: ForwardedSignal): void {
    const isFromKeys = (signal === 'SIGINT' || signal === 'SIGQUIT') && [0, 1, 2].some((fd) => isatty(fd));
    if (!isFromKeys) this.#child.kill(signal);
  }

  /** Ends the command and everything it has started. */
  async stop(graceMs: number): Promise<void> {
    await stopTree(this.self, graceMs);
    await this.ended;
  }
}

/**
 * Ends a process that lives, and everything it has started: with SIGTERM, and what is still there after a while with
 * SIGKILL.
 */
export async function stopTree(root: ProcessId, graceMs: number): Promise<void> {
  const all = [root, ...descendants(root.pid)];
  for (const each of all) signalTo(each, 'SIGTERM');
  const deadline = performance.now() + graceMs;
  while (performance.now() < deadline && all.some(isAlive)) await delay(lookMs);
  killTree(all);
}

/**
 * Kills processes and what they have started. All are stopped before the first is killed: one that sees its child die
 * might start another, which nobody would know of.
 */
function killTree(roots: readonly ProcessId[]): void {
  const stopped: ProcessId[] = [];
  for (let found = roots.filter(isAlive); found.length > 0; ) {
    for (const each of found) signalTo(each, 'SIGSTOP');
    stopped.push(...found);
    const known = new Set(stopped.map(({ pid }) => pid));
    found = stopped.flatMap(({ pid }) => descendants(pid)).filter(({ pid }) => !known.has(pid));
  }
  for (const each of stopped) signalTo(each, 'SIGKILL');
}

function signalTo(id: ProcessId, signal: NodeJS.Signals): void {
  if (!isAlive(id)) return;
  try {
    process.kill(id.pid, signal);
  } catch (error) {
    // It has ended just now, or belongs to somebody else and cannot be ended by us.
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ESRCH' && code !== 'EPERM') throw error;
  }
}

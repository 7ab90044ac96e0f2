import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { descendants, isAlive, lookUp, type ProcessId } from './process-tree.ts';

const lookMs = 50;

/** Signals that are forwarded to the running command. */
export const forwardedSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
export type ForwardedSignal = (typeof forwardedSignals)[number];

/** The exit code of a shell whose command was killed by a signal. */
export const codeOfSignal = (signal: NodeJS.Signals): number => 128 + constants.signals[signal];

/** Executes the command when it reads a line, and exits at the end of its input. */
const gate = 'read -r go <&3 || exit 0; exec 3<&-; exec "$@"';

/** A command that runs with the standard input and output of this process. */
export class Command {
  readonly #child: ChildProcess;
  /** The identity of its process. */
  readonly self: ProcessId;
  /** Its exit code, or 128 plus the number of the signal that killed it. */
  readonly ended: Promise<number>;

  private constructor(child: ChildProcess) {
    this.#child = child;
    const pid = child.pid as number;
    // A process that has exited already gets an identity that matches no living process.
    this.self = lookUp(pid) ?? { pid, started: '' };
    this.ended = once(child, 'exit').then(([code, signal]: (number | NodeJS.Signals | null)[]) =>
      typeof code === 'number' ? code : codeOfSignal(signal as NodeJS.Signals),
    );
  }

  /**
   * Calls `onProcess` before the command runs. A command that cannot be run ends as in a shell, which prints
   * the reason: with 126, or with 127 where there is no such command.
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
    // The process was killed before it could read the line.
    go.on('error', () => {});
    go.end('go\n');
    return command;
  }

  /**
   * On a terminal, Ctrl-C and Ctrl-\ reach the command by themselves. A second signal would count as a second
   * key press.
   */
  forward(signal: ForwardedSignal): void {
    const isFromKeys = (signal === 'SIGINT' || signal === 'SIGQUIT') && [0, 1, 2].some((fd) => isatty(fd));
    if (!isFromKeys) this.#child.kill(signal);
  }

  /** Ends the command and all its descendants. */
  async stop(graceMs: number): Promise<void> {
    await stopTree(this.self, graceMs);
    await this.ended;
  }
}

/** Ends a living process and all its descendants: with SIGTERM, and after `graceMs` with SIGKILL. */
export async function stopTree(root: ProcessId, graceMs: number): Promise<void> {
  const all = [root, ...descendants(root.pid)];
  for (const each of all) signalTo(each, 'SIGTERM');
  const deadline = performance.now() + graceMs;
  while (performance.now() < deadline && all.some(isAlive)) await delay(lookMs);
  killTree(all);
}

/**
 * Kills processes and their descendants. All are stopped before the first is killed: a process that sees its
 * child die might start another one, which would be missed.
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
    // The process has just ended, or belongs to another user and cannot be signaled.
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ESRCH' && code !== 'EPERM') throw error;
  }
}

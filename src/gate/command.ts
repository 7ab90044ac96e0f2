import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { descendants, isAlive, lookUp, type ProcessId } from './processes.ts';

const lookMs = 50;

/** What is passed on to a command that runs. */
export const forwardedSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
export type ForwardedSignal = (typeof forwardedSignals)[number];

/** What a shell ends with where a signal has ended a command. */
export const codeOfSignal = (signal: NodeJS.Signals): number => 128 + constants.signals[signal];

const notFound = 127;
const notExecutable = 126;

/** A command that could not be started, with the code that shells have for it. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly code: number;

  constructor(message: string, code: number) {
    super(message);
    this.code = code;
  }
}

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

  static async start(words: readonly string[], environment: Record<string, string>): Promise<Command> {
    const [file = '', ...args] = words;
    const child = spawn(file, args, { stdio: 'inherit', env: { ...process.env, ...environment } });
    try {
      await once(child, 'spawn');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      throw new CommandError(
        code === 'ENOENT'
          ? `there is no command ${file}`
          : `${file} cannot be run: ${(error as Error).message}`,
        code === 'ENOENT' ? notFound : notExecutable,
      );
    }
    return new Command(child);
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

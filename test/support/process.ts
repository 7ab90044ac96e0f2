/**
 * Leasehold as its users run it: a process of its own, with an environment that holds nothing but what the test says.
 *
 * Whatever a test forgets, or never gets to because it failed, is killed at the end of the run, and by the guard of
 * `cleanup.ts` should the run itself be killed. A server is best held with `await using`, which kills it.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { atEnd, forgetProcess, temporaryFolder, watchProcess } from './cleanup.ts';

/** The program. */
export const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
/** As `npm start` and the published command start it. */
export const nodeFlags = ['--max-semi-space-size=64', '--no-allocation-site-pretenuring'];
const readyLimitMs = 25_000;
const exitLimitMs = 25_000;

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export type Environment = Record<string, string>;

export interface Surroundings {
  /** The current directory; a folder of the run's own where left out. */
  cwd?: string;
  /** What it reads from its standard input; nothing where left out. */
  input?: string;
}

/** Any `leasehold` command while it runs. */
export class LeaseholdProcess {
  readonly pid: number;
  /** What it has said so far, line by line. */
  readonly stdout: string[] = [];
  readonly stderr: string[] = [];
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #exit: Promise<Exit>;
  #isOver = false;

  /** Use `startProcess()`. */
  constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child;
    this.pid = child.pid as number;
    createInterface(child.stdout).on('line', (line) => this.stdout.push(line));
    createInterface(child.stderr).on('line', (line) => this.stderr.push(line));
    this.#exit = once(child, 'close').then(([code, signal]) => {
      this.#isOver = true;
      void forgetProcess(this.pid);
      return { code, signal, stdout: this.stdout.join('\n'), stderr: this.stderr.join('\n') };
    });
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Sends a signal and does not wait for what comes of it. */
  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Reads nothing more of what it prints, as `head` does when it has seen enough. */
  hangUp(): void {
    this.#child.stdout.destroy();
  }

  /** How it ended, once it has; a process that does not end is killed and is an error. */
  async exited(limitMs = exitLimitMs): Promise<Exit> {
    const tooLate = new AbortController();
    const late = delay(limitMs, undefined, { signal: tooLate.signal }).then(
      () => true,
      () => false,
    );
    const exit = await Promise.race([this.#exit, late]);
    tooLate.abort();
    if (typeof exit === 'object') return exit;
    await this.kill();
    throw new Error(`process ${this.pid} had not ended after ${limitMs} ms; it said:\n${this.said()}`);
  }

  /** Kills it outright and waits until it is gone. */
  kill(): Promise<Exit> {
    this.#child.kill('SIGKILL');
    return this.#exit;
  }

  /** Asks it to stop, and waits until it has. */
  stop(): Promise<Exit> {
    this.signal('SIGTERM');
    return this.exited();
  }

  said(): string {
    return [...this.stdout, ...this.stderr].join('\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

/** A server that has said that it is ready. */
export class ServerProcess extends LeaseholdProcess {
  /** The whole line that says so. */
  readyLine = '';
  /** `http://127.0.0.1:12345` */
  http = '';
  /** `127.0.0.1:12346` */
  grpc = '';
  /** From the start of the process to its ready line. */
  readyMs = 0;

  /** Structured lines of its log. */
  log(): Record<string, unknown>[] {
    return this.stderr.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  }
}

/** This process's environment without variables that change Leasehold, PostgreSQL, traces or colours. */
export function bareEnvironment(): Environment {
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^(PG|LEASEHOLD_|DATABASE_|REDIS_|OTEL_|FORCE_COLOR$|NO_COLOR$)/.test(name),
  );
  return Object.fromEntries(kept) as Environment;
}

let folder: Promise<string> | undefined;

async function begin(
  args: readonly string[],
  environment: Environment,
  { cwd, input = '' }: Surroundings = {},
) {
  // The default data directory is relative: it must not be made in the folder of the source.
  folder ??= temporaryFolder('home');
  const child = spawn(process.execPath, [...nodeFlags, main, ...args], {
    cwd: cwd ?? (await folder),
    env: { ...bareEnvironment(), ...environment },
  });
  await once(child, 'spawn');
  // Whoever reads nothing of it has closed it.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  await watchProcess(child.pid as number);
  return child;
}

/** Starts `leasehold` with these arguments. */
export async function startProcess(
  args: readonly string[],
  environment: Environment = {},
  surroundings: Surroundings = {},
) {
  const started = new LeaseholdProcess(await begin(args, environment, surroundings));
  atEnd(async () => void (await started.kill()));
  return started;
}

/** Runs `leasehold` with these arguments to its end. */
export async function runCommand(
  args: readonly string[],
  environment: Environment = {},
  surroundings: Surroundings = {},
): Promise<Exit> {
  return (await startProcess(args, environment, surroundings)).exited();
}

/** Starts a server on free ports and waits until it is ready. */
export async function startServer(
  environment: Environment,
  args: readonly string[] = [],
): Promise<ServerProcess> {
  const anywhere = { LEASEHOLD_HTTP_ADDR: '127.0.0.1:0', LEASEHOLD_GRPC_ADDR: '127.0.0.1:0' };
  const startedAt = performance.now();
  const server = new ServerProcess(await begin(['serve', ...args], { ...anywhere, ...environment }));
  atEnd(async () => void (await server.kill()));
  await until('a ready line', () => server.isOver || server.stdout.length > 0, readyLimitMs).catch(() => {});
  server.readyMs = performance.now() - startedAt;
  server.readyLine = server.stdout[0] ?? '';
  const [, http, grpc] = /^leasehold ready: (http:\S+) .*, grpc (\S+),/.exec(server.readyLine) ?? [];
  if (http === undefined || grpc === undefined) {
    await server.kill();
    throw new Error(`a server was not ready after ${readyLimitMs} ms; it said:\n${server.said()}`);
  }
  return Object.assign(server, { http, grpc });
}

/** Waits for a condition, and no longer than the limit. Looks often, so that what is measured is the condition. */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  limitMs = 15_000,
): Promise<void> {
  const deadline = performance.now() + limitMs;
  while (!(await isTrue())) {
    if (performance.now() > deadline) throw new Error(`waited ${limitMs} ms in vain for ${what}`);
    await delay(5);
  }
}

/**
 * A real Redis for tests and benchmarks, in a temporary folder, that keeps nothing on the disk unless it is told to, and is
 * gone without a trace.
 *
 * A server is running from the moment `startRedis()` resolves. `kill()` ends it outright, and `restart()` brings it back,
 * empty, on the same address; `pause()` lets it hang and `resume()` lets it go on. `stop()` is for good, and may be
 * called in any state. A server that nobody stops is stopped with the test run.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { createClient, type RedisClientType } from '@redis/client';
import { atEnd, forgetProcess, temporaryFolder, watchProcess } from './cleanup.ts';
import { freePort } from './free-port.ts';
import { describeWith, findProgram } from './programs.ts';

const startLimitMs = 10_000;
const pollMs = 10;

/** Settings of the server by their names, such as `{ appendonly: 'yes' }`. */
export type RedisSettings = Record<string, string>;

const nothingKept: RedisSettings = { save: '', appendonly: 'no' };

export class TestRedis {
  readonly #program: string;
  readonly #folder: string;
  readonly #settings: RedisSettings;
  readonly #clients: RedisClientType[] = [];
  #port = 0;
  #server: ChildProcess | undefined;
  #stopped = false;

  /** Use `startRedis()`. */
  constructor(program: string, folder: string, settings: RedisSettings = nothingKept) {
    this.#program = program;
    this.#folder = folder;
    this.#settings = settings;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#port}`;
  }

  /** The process id of the server while it runs. */
  get pid(): number | undefined {
    return this.#server?.pid;
  }

  /** A connection for the test itself, closed by `stop()`. It comes back by itself after a restart. */
  async client(): Promise<RedisClientType> {
    const client: RedisClientType = createClient({ url: this.url, socket: { reconnectStrategy: pollMs } });
    // That a server which was killed hangs up is no news to the test that killed it.
    client.on('error', () => {});
    this.#clients.push(client);
    await client.connect();
    return client;
  }

  async kill(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    server.ref();
    const exit = once(server, 'exit');
    server.kill('SIGKILL');
    await exit;
  }

  async restart(): Promise<void> {
    if (this.#stopped) throw new Error('this Redis was stopped for good');
    await this.kill();
    await this.start();
  }

  pause(): void {
    this.#server?.kill('SIGSTOP');
  }

  resume(): void {
    this.#server?.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const client of this.#clients.splice(0)) client.destroy();
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** A first start may lose its port to somebody else, which is cured by trying again. */
  async start(): Promise<void> {
    const deadline = performance.now() + startLimitMs;
    const portIsKnown = this.#port !== 0;
    for (;;) {
      if (!portIsKnown) this.#port = await freePort();
      if (await this.#tryToStart(deadline)) return;
      if (performance.now() > deadline) throw new Error(`Redis did not start within ${startLimitMs} ms`);
      await delay(10 * pollMs);
    }
  }

  async #tryToStart(deadline: number): Promise<boolean> {
    const settings = { port: this.#port, bind: '127.0.0.1', ...this.#settings, dir: this.#folder };
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
    const server = spawn(this.#program, args, { cwd: this.#folder, detached: true, stdio: 'ignore' });
    this.#server = server;
    await once(server, 'spawn');
    const pid = server.pid as number;
    await watchProcess(pid);
    server.once('exit', () => {
      if (this.#server === server) this.#server = undefined;
      void forgetProcess(pid);
    });
    while (this.#server === server && performance.now() < deadline) {
      if (await answers(this.url)) {
        // The guard ends a server whose tests have died, so the server need not keep them alive.
        server.unref();
        return true;
      }
      await delay(pollMs);
    }
    return false;
  }
}

async function answers(url: string): Promise<boolean> {
  const client = createClient({ url, socket: { reconnectStrategy: false } });
  client.on('error', () => {});
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    client.destroy();
  }
}

export const findRedis = (): string | undefined => findProgram('redis');

export async function startRedis(settings?: RedisSettings): Promise<TestRedis> {
  const program = findRedis();
  if (program === undefined) throw new Error('no redis-server found on the PATH');
  const redis = new TestRedis(program, await temporaryFolder('redis'), settings);
  atEnd(() => redis.stop());
  await redis.start();
  return redis;
}

/** A describe block for tests that need a Redis; without one it becomes a part of the 'not run' line. */
export const describeWithRedis = (title: string, define: () => void): void =>
  describeWith('redis', title, define);

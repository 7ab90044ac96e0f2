import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { atEnd, forgetProcess, temporaryFolder, watchProcess } from '../support/cleanup.ts';
import { main, nodeFlags } from '../support/process.ts';

const unmeteredFile = new URL('./unmetered.ts', import.meta.url).href;
const readyLimitMs = 60_000;
const stopLimitMs = 15_000;

/** What a server is started from. */
export interface Program {
  nodeFlags: readonly string[];
  main: string;
}

const ownProgram: Program = { nodeFlags, main };

export interface ServerOptions {
  env: Record<string, string>;
  /** Where its CPU profile goes when it ends, if one is wanted. */
  profile?: { folder: string; name: string } | undefined;
  /** Counts nothing; see `unmetered.ts`. */
  unmetered?: boolean | undefined;
  /** The server asks for keys. Its addresses then have the key of an administrator, as `key@host:port`. */
  keys?: boolean | undefined;
  /** That of another tree; of this one where left out. */
  program?: Program | undefined;
}

/** A real server in a process of its own: running from the moment `start` resolves until `stop`. */
export class ServerProcess {
  readonly grpc: string;
  readonly http: string;
  /** From the start of the process to the line that says 'ready'. */
  readonly readyMs: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, { grpc, http }: { grpc: string; http: string }, readyMs: number) {
    this.#child = child;
    this.grpc = grpc;
    this.http = http;
    this.readyMs = readyMs;
  }

  static async start(options: ServerOptions): Promise<ServerProcess> {
    const { env, profile, unmetered, keys = false, program = ownProgram } = options;
    const keyFile = keys ? join(await temporaryFolder('bench-key'), 'admin') : undefined;
    const auth = keyFile === undefined ? {} : { LEASEHOLD_AUTH: 'keys', LEASEHOLD_ADMIN_KEY_FILE: keyFile };
    const flags = profile
      ? ['--cpu-prof', `--cpu-prof-dir=${profile.folder}`, `--cpu-prof-name=${profile.name}.cpuprofile`]
      : [];
    if (unmetered) flags.push('--import', unmeteredFile);
    const began = performance.now();
    const child = spawn(process.execPath, [...program.nodeFlags, ...flags, program.main, 'serve'], {
      env: { ...ownEnvironment(), ...fixedSettings, ...auth, ...env },
      // Whatever a server says at this level is worth seeing.
      stdio: ['ignore', 'pipe', 'inherit'],
      // In a group of its own: Ctrl-C is for the benchmark, which then stops its servers one by one.
      detached: true,
    });
    await once(child, 'spawn');
    await watchProcess(child.pid as number);
    const ready = await readyLine(child).catch(async (error) => {
      await end(child);
      throw error;
    });
    const key = keyFile === undefined ? undefined : (await readFile(keyFile, 'utf8')).trim();
    const server = new ServerProcess(child, addressesIn(ready, key), performance.now() - began);
    atEnd(() => server.stop());
    return server;
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  stop(): Promise<void> {
    return end(this.#child);
  }
}

/** Claims hold for longer than any run, so that none comes back to the queue and is rightly handed out again. */
const fixedSettings = {
  LEASEHOLD_LOG: 'warn',
  LEASEHOLD_HTTP_ADDR: '127.0.0.1:0',
  LEASEHOLD_GRPC_ADDR: '127.0.0.1:0',
  LEASEHOLD_CLAIM_TTL_S: '3600',
  // How much may run at the same time is not what is measured.
  LEASEHOLD_CAPACITY_TOTAL: '1000000',
};

/** The settings of whoever runs the benchmark are for another server. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const foreign = /^(LEASEHOLD_|PG|DATABASE_URL$|REDIS_URL$)/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !foreign.test(name)));
}

async function readyLine(child: ChildProcess): Promise<string> {
  const over = new AbortController();
  const { signal } = over;
  const timeLimit = setTimeout(() => over.abort(new Error('the server was not ready in time')), readyLimitMs);
  const exit = once(child, 'exit', { signal }).then(([code, killer]) => {
    throw new Error(`the server ended before it was ready (${killer ?? code})`);
  });
  exit.catch(() => {});
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  try {
    for (;;) {
      const [line] = (await Promise.race([once(lines, 'line', { signal }), exit])) as [string];
      if (line.includes('ready')) return line;
    }
  } finally {
    clearTimeout(timeLimit);
    over.abort();
    // Nothing more is read of it, but it must be able to write.
    lines.close();
    child.stdout?.resume();
  }
}

function addressesIn(line: string, key: string | undefined): { grpc: string; http: string } {
  const http = /http:\/\/\S+/.exec(line)?.[0];
  const grpc = /grpc (\S+?),/.exec(line)?.[1];
  if (http === undefined || grpc === undefined) throw new Error(`no addresses in: ${line}`);
  if (key === undefined) return { http, grpc };
  return { http: http.replace('//', `//${key}@`), grpc: `${key}@${grpc}` };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), stopLimitMs);
    await exit;
    clearTimeout(timer);
  }
  await forgetProcess(child.pid as number);
}

/**
 * A real PostgreSQL for tests and benchmarks, made from nothing in a temporary folder and gone without a trace.
 *
 * A cluster is running from the moment `startPostgres()` resolves. `kill()` ends it as a power cut would end the
 * process; `restart()` brings it back on the same address with the same data, after a crash if it was still running.
 * `stop()` is for good, and may be called in any state. A cluster that nobody stops is stopped with the test run.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { atEnd, forgetProcess, temporaryFolder, watchProcess } from './cleanup.ts';
import { findPostgres, postgresVersion } from './find-postgres.ts';
import { freePort } from './free-port.ts';

export { findPostgres, postgresVersion };

const run = promisify(execFile);
const startLimitMs = 30_000;
const stopLimitMs = 10_000;
const pollMs = 20;

export interface ClusterOptions {
  /** Default true. Without it nothing is flushed to the disk: faster, and still safe against a killed process. */
  durable?: boolean;
  /** Further server settings, such as `{ shared_buffers: '1GB' }`. */
  settings?: Record<string, string>;
}

interface Identity {
  uid: number;
  gid: number;
}

/** PostgreSQL refuses to run as root, so root lends the server another user's identity. */
async function serverIdentity(): Promise<Identity | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  for (const name of ['postgres', 'nobody']) {
    const user = users.find((fields) => fields[0] === name);
    if (user) return { uid: Number(user[2]), gid: Number(user[3]) };
  }
  throw new Error(
    'PostgreSQL cannot run as root, and there is no user named postgres or nobody to run it as',
  );
}

/** The caller's PGHOST, PGOPTIONS and the like belong to another server than ours. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('PG'));
  return { ...Object.fromEntries(kept), LC_ALL: 'C' };
}

function checkName(name: string): string {
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(name)) throw new Error(`not a plain database name: ${name}`);
  return name;
}

export class TestCluster {
  readonly version: string;
  readonly #bin: string;
  readonly #folder: string;
  readonly #identity: Identity | undefined;
  readonly #settings: Record<string, string>;
  #port: number | undefined;
  #server: ChildProcess | undefined;
  #stopped = false;
  #databases = 0;

  /** Use `startPostgres()`. */
  constructor(bin: string, folder: string, identity: Identity | undefined, settings: Record<string, string>) {
    this.version = postgresVersion(bin);
    this.#bin = bin;
    this.#folder = folder;
    this.#identity = identity;
    this.#settings = settings;
  }

  get port(): number {
    if (this.#port === undefined) throw new Error('this PostgreSQL has not been started');
    return this.#port;
  }

  /** The folder that holds the server's unix socket. */
  get socketFolder(): string {
    return this.#folder;
  }

  /** The process id of the server while it runs. */
  get pid(): number | undefined {
    return this.#server?.pid;
  }

  url(database: string): string {
    return `postgres://postgres@127.0.0.1:${this.port}/${checkName(database)}`;
  }

  /** Runs one statement as the superuser and returns its rows as text, a line each and columns parted by '|'. */
  async query(sql: string, database = 'postgres'): Promise<string> {
    const args = ['-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', this.url(database), '-c', sql];
    const { stdout } = await run(join(this.#bin, 'psql'), args, { env: cleanEnvironment() });
    return stdout.trim();
  }

  /** Makes a database, empty or a copy of `template`, to which nobody may be connected, and returns its name. */
  async createDatabase(template = 'template1'): Promise<string> {
    this.#databases += 1;
    const name = `test_${this.#databases}`;
    await this.query(`create database ${name} template ${checkName(template)}`);
    return name;
  }

  /** Drops a database, throwing out whoever is still connected. */
  async dropDatabase(name: string): Promise<void> {
    await this.query(`drop database if exists ${checkName(name)} with (force)`);
  }

  /**
   * Kills the server outright: what was not written ahead is lost, and the next start recovers from the log. A session that
   * is left alone answers for a moment longer, so those go with it, where the system tells which they are.
   */
  async kill(): Promise<void> {
    const pid = this.pid;
    const children = pid === undefined ? [] : await childrenOf(pid);
    const ended = this.#end('SIGKILL');
    for (const child of children) killIfThere(child);
    await ended;
  }

  async restart(): Promise<void> {
    if (this.#stopped) throw new Error('this PostgreSQL was stopped for good');
    await this.kill();
    await this.#start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#end('SIGQUIT');
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Called once, by `startPostgres()`: makes the data directory and starts the server on a free port. */
  async initialise(): Promise<void> {
    const args = [
      '-D',
      this.#data,
      '-U',
      'postgres',
      '-A',
      'trust',
      '-E',
      'UTF8',
      '--no-locale',
      '--no-sync',
    ];
    await run(join(this.#bin, 'initdb'), args, this.#spawnOptions());
    await this.#start();
  }

  /** Called once, by `startStandby()`: copies a primary, follows it under this name, and starts as its hot standby. */
  async follow(primary: { host: string; port: number }, name: string): Promise<void> {
    const address = `host=${primary.host} port=${primary.port} user=postgres application_name=${name}`;
    const args = ['-D', this.#data, '-d', address, '-X', 'stream', '-c', 'fast', '-R', '--no-sync'];
    await run(join(this.#bin, 'pg_basebackup'), args, this.#spawnOptions());
    await this.#start();
  }

  get #data(): string {
    return join(this.#folder, 'data');
  }

  #spawnOptions() {
    return { ...this.#identity, cwd: this.#folder, env: cleanEnvironment() };
  }

  /**
   * A first start may lose its port to somebody else, and a start after a crash must wait until the last backends
   * have noticed; both are cured by trying again.
   */
  async #start(): Promise<void> {
    const deadline = performance.now() + startLimitMs;
    const portIsKnown = this.#port !== undefined;
    for (;;) {
      if (!portIsKnown) this.#port = await freePort();
      if (await this.#tryToStart(deadline)) return;
      if (performance.now() > deadline) {
        const log = await readFile(join(this.#folder, 'log'), 'utf8');
        throw new Error(`PostgreSQL did not start; its log ends with:\n${log.slice(-2000)}`);
      }
      await delay(10 * pollMs);
    }
  }

  async #tryToStart(deadline: number): Promise<boolean> {
    const settings = {
      ...this.#settings,
      listen_addresses: '127.0.0.1',
      unix_socket_directories: this.#folder,
      port: String(this.port),
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const log = await open(join(this.#folder, 'log'), 'a');
    const server = spawn(join(this.#bin, 'postgres'), ['-D', this.#data, ...args], {
      ...this.#spawnOptions(),
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
    });
    this.#server = server;
    await once(server, 'spawn');
    await log.close();
    const pid = server.pid as number;
    await watchProcess(pid);
    server.once('exit', () => {
      if (this.#server === server) this.#server = undefined;
      void forgetProcess(pid);
    });
    while (this.#server === server) {
      if (await this.#isReady(pid)) {
        // The guard ends a server whose tests have died, so the server need not keep them alive.
        server.unref();
        return true;
      }
      if (performance.now() > deadline) await this.#end('SIGQUIT');
      await delay(pollMs);
    }
    return false;
  }

  /** The server writes its state into its pid file, as the eighth line; the first line tells old files from new. */
  async #isReady(pid: number): Promise<boolean> {
    const lines = await readFile(join(this.#data, 'postmaster.pid'), 'utf8').then(
      (text) => text.split('\n'),
      () => [],
    );
    return lines[0] === String(pid) && lines[7]?.trim() === 'ready';
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const server = this.#server;
    if (!server) return;
    server.ref();
    const exit = once(server, 'exit');
    server.kill(signal);
    const timer = setTimeout(() => server.kill('SIGKILL'), stopLimitMs);
    await exit;
    clearTimeout(timer);
  }
}

async function childrenOf(pid: number): Promise<number[]> {
  if (process.platform !== 'linux') return [];
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
  return text.trim().split(' ').filter(Boolean).map(Number);
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Makes and starts a cluster; about two seconds. */
export async function startPostgres(options: ClusterOptions = {}): Promise<TestCluster> {
  const cluster = await prepareCluster(options);
  await cluster.initialise();
  return cluster;
}

/** Makes and starts a standby of the primary that listens there. */
export async function startStandby(
  primary: { host: string; port: number },
  name: string,
): Promise<TestCluster> {
  const cluster = await prepareCluster({});
  await cluster.follow(primary, name);
  return cluster;
}

async function prepareCluster(options: ClusterOptions): Promise<TestCluster> {
  const bin = findPostgres();
  if (!bin) throw new Error('no PostgreSQL found; LEASEHOLD_TEST_PG_BIN may name its bin directory');
  const { durable = true, settings = {} } = options;
  const onDisk: Record<string, string> = durable ? {} : { fsync: 'off', full_page_writes: 'off' };
  const identity = await serverIdentity();
  const folder = await temporaryFolder('postgres');
  if (identity) await chown(folder, identity.uid, identity.gid);
  const cluster = new TestCluster(bin, folder, identity, { max_connections: '200', ...onDisk, ...settings });
  atEnd(() => cluster.stop());
  return cluster;
}

let shared: Promise<TestCluster> | undefined;

/** The one cluster that all test files of a run share, started by whoever asks first. It is not durable. */
export function sharedPostgres(): Promise<TestCluster> {
  shared ??= startPostgres({ durable: false });
  return shared;
}

/** What tests of the gate have in common: repositories, agents, and a server whose time can be moved. */
import { type ChildProcessWithoutNullStreams, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, realpath, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { FilesClient } from '../../src/agent/files-client.ts';
import { SessionStore } from '../../src/agent/session-store.ts';
import { tryLock } from '../../src/lib/file-lock.ts';
import { openDatabase } from '../../src/store/open.ts';
import { atEnd, forgetProcess, temporaryFolder, watchProcess } from './cleanup.ts';
import { bareEnvironment, type Environment, main, until } from './process.ts';
import type { TestServer } from './server.ts';

/** Git without anything that this machine or its user has set. */
export const gitEnvironment: Environment = {
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'Ann',
  GIT_AUTHOR_EMAIL: 'ann@example.org',
  GIT_COMMITTER_NAME: 'Ann',
  GIT_COMMITTER_EMAIL: 'ann@example.org',
};

const run = promisify(execFile);

/** A git repository with nothing in it. */
export class Repository {
  readonly top: string;

  private constructor(top: string) {
    this.top = top;
  }

  static async create(): Promise<Repository> {
    const top = await realpath(await mkdtemp(join(await temporaryFolder('repository'), 'top-')));
    const repository = new Repository(top);
    await repository.git('init', '--quiet', '--initial-branch=main');
    return repository;
  }

  /** What git says, on both of its streams. */
  async git(...args: string[]): Promise<string> {
    return this.gitAs({}, ...args);
  }

  async gitAs(environment: Environment, ...args: string[]): Promise<string> {
    const env = { ...bareEnvironment(), ...gitEnvironment, ...environment };
    const { stdout, stderr } = await run('git', args, { cwd: this.top, env });
    return stdout + stderr;
  }

  async write(path: string, text = `${Math.random()}\n`): Promise<void> {
    await writeFile(join(this.top, path), text);
  }
}

/** Acts on a server's files as some owner would. */
export const apiOf = (server: { http: string }): FilesClient => new FilesClient(server.http);

/** Who holds what of a repository, by path. */
export async function holders(server: { http: string }, repository: string): Promise<Record<string, string>> {
  const leases = await apiOf(server).leases({ repository });
  return Object.fromEntries(leases.map(({ path, owner_id }) => [path, owner_id]));
}

/** An owner has these files. */
export async function take(
  server: { http: string },
  owner_id: string,
  repository: string,
  ...paths: string[]
) {
  return apiOf(server).acquire({ owner_id, repository, paths, owner: { agent: 'test' } });
}

/**
 * Makes every contention of an owner older, as if it had waited for so long already. What the server says to its next
 * request follows from that, as after a real wait; the three minutes themselves stay what they are.
 */
export async function letWaitingPass(server: TestServer, ownerId: string, ms: number): Promise<void> {
  const database = await openDatabase({ ...server.store.options, poolMax: 1 });
  try {
    await database.query(
      `update file_contentions set denied_at = denied_at - $2::float8 * interval '1 ms',
         retry_at = retry_at - $2::float8 * interval '1 ms', check_at = check_at - $2::float8 * interval '1 ms'
       where owner_id = $1`,
      [ownerId, ms],
    );
  } finally {
    await database.close();
  }
}

interface Answer {
  code: number | null;
  stdout: string;
  stderr: string;
}

const fixture = fileURLToPath(new URL('fixtures/claude.ts', import.meta.url));
const ownCommand = `'${process.execPath}' '${main}'`;
let agents = 0;

/** A coding agent, as far as its hooks and its commits can tell, with a state folder of its own. */
export class FakeAgent {
  readonly session = `session-${process.pid}-${++agents}`;
  readonly notes: SessionStore;
  readonly pid: number;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #cwd: string;
  readonly #waiting = new Map<number, (answer: Answer) => void>();

  private constructor(child: ChildProcessWithoutNullStreams, notes: SessionStore, cwd: string) {
    this.#child = child;
    this.pid = child.pid as number;
    this.notes = notes;
    this.#cwd = cwd;
    createInterface(child.stdout).on('line', (line) => {
      const { id, ...answer } = JSON.parse(line) as Answer & { id: number };
      this.#waiting.get(id)?.(answer);
    });
  }

  static async start(cwd: string, environment: Environment): Promise<FakeAgent> {
    const LEASEHOLD_STATE_DIR = environment.LEASEHOLD_STATE_DIR ?? (await temporaryFolder('state'));
    const env = { ...bareEnvironment(), ...gitEnvironment, ...environment, LEASEHOLD_STATE_DIR };
    const child = spawn(process.execPath, [fixture], { env, stdio: 'pipe' });
    await once(child, 'spawn');
    const agent = new FakeAgent(child, new SessionStore(join(LEASEHOLD_STATE_DIR, hostname())), cwd);
    await watchProcess(agent.pid);
    atEnd(() => agent.kill());
    return agent;
  }

  /** Runs a command as a tool would. */
  run(command: string, { input = '', environment = {} as Environment } = {}): Promise<Answer> {
    const id = this.#waiting.size;
    const answer = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    this.#child.stdin.write(`${JSON.stringify({ id, command, input, cwd: this.#cwd, environment })}\n`);
    return answer;
  }

  leasehold(command: string, options: { input?: string; environment?: Environment } = {}): Promise<Answer> {
    return this.run(`${ownCommand} ${command}`, options);
  }

  /** Calls the hook with an event, in the shape in which Claude Code sends it. */
  hook(event: string, fields: object = {}, flags = ''): Promise<Answer> {
    const common = {
      session_id: this.session,
      transcript_path: `/home/ann/.claude/projects/x/${this.session}.jsonl`,
      cwd: this.#cwd,
      permission_mode: 'default',
      hook_event_name: event,
    };
    return this.leasehold(`hook claude-code ${flags}`, { input: JSON.stringify({ ...common, ...fields }) });
  }

  /** Ends it as a crash does. */
  end(): void {
    this.#child.kill('SIGKILL');
  }

  /** Ends it, and waits until its heartbeaters have ended too. */
  async kill(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, 'exit');
      this.end();
      await ended;
    }
    await forgetProcess(this.pid);
    await until('the end of the heartbeaters', () => this.notes.all().length === 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

/** Whether an owner has a heartbeater. */
export function isKept(notes: SessionStore, ownerId: string): boolean {
  if (!existsSync(notes.lockOf(ownerId))) return false;
  const lock = tryLock(notes.lockOf(ownerId));
  lock?.release();
  return lock === undefined;
}

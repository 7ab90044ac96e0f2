import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir, hostname } from 'node:os';
import { join } from 'node:path';
import { tryLock } from '../lib/file-lock.ts';
import type { Agent } from './find-agent.ts';
import { isAlive, type ProcessId } from './process-tree.ts';

/** A hook's note about its owner, for later hooks and the keep-alive process. */
export interface Note {
  owner_id: string;
  /** The URL of the owner's server. */
  url: string;
  agent: Agent;
  since: string;
}

export const folderVariable = 'LEASEHOLD_STATE_DIR';
/** Lock files that were unused for this long are removed. */
const lockKeptMs = 24 * 60 * 60 * 1000;

/**
 * The folder of the notes, with one file per owner. A note is written to a temporary file and renamed, so
 * that readers see either all of it or the previous one. The folder belongs to this machine alone, because
 * machines may share a home directory.
 */
export class SessionStore {
  readonly folder: string;

  constructor(folder = defaultFolder()) {
    this.folder = folder;
  }

  write(note: Note): void {
    mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    const aside = join(this.folder, `${randomUUID()}.tmp`);
    writeFileSync(aside, `${JSON.stringify(note)}\n`, { mode: 0o600 });
    renameSync(aside, this.#file(note.owner_id, 'json'));
  }

  read(ownerId: string): Note | undefined {
    return noteIn(this.#file(ownerId, 'json'));
  }

  remove(ownerId: string): void {
    rmSync(this.#file(ownerId, 'json'), { force: true });
  }

  all(): Note[] {
    return this.#names('.json')
      .map((name) => noteIn(join(this.folder, name)))
      .filter((note) => note !== undefined);
  }

  /** The owners whose agent is this process. */
  of({ pid, started }: ProcessId): Note[] {
    return this.all().filter(({ agent }) => agent.pid === pid && agent.started === started);
  }

  /** The lock file of an owner's keep-alive process. The folder must exist. */
  lockOf(ownerId: string): string {
    return this.#file(ownerId, 'lock');
  }

  /** Removes the notes of agents that are gone and whose keep-alive processes were killed with them. */
  removeStale(): void {
    for (const { owner_id, agent } of this.all()) {
      if (isAlive(agent)) continue;
      const lock = tryLock(this.lockOf(owner_id));
      if (lock) this.remove(owner_id);
      lock?.release();
    }
    const isKept = new Set(this.#names('.json').map((name) => name.replace(/json$/, 'lock')));
    for (const name of this.#names('.lock')) {
      const file = join(this.folder, name);
      const usedAt = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
      if (!isKept.has(name) && usedAt < Date.now() - lockKeptMs) rmSync(file, { force: true });
    }
  }

  #names(ending: string): string[] {
    try {
      return readdirSync(this.folder).filter((name) => name.endsWith(ending));
    } catch {
      // No note has been written yet.
      return [];
    }
  }

  #file(ownerId: string, ending: string): string {
    return join(this.folder, `${createHash('sha256').update(ownerId).digest('hex').slice(0, 32)}.${ending}`);
  }
}

function defaultFolder(): string {
  const { [folderVariable]: named, XDG_STATE_HOME } = process.env;
  return join(named || join(XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'leasehold'), hostname());
}

function noteIn(file: string): Note | undefined {
  try {
    const note: Partial<Note> | null = JSON.parse(readFileSync(file, 'utf8'));
    const { owner_id, url, agent, since } = note ?? {};
    if (typeof owner_id !== 'string' || typeof url !== 'string' || typeof since !== 'string')
      return undefined;
    if (typeof agent?.pid !== 'number' || typeof agent.started !== 'string') return undefined;
    return { owner_id, url, agent, since };
  } catch {
    return undefined;
  }
}

import { spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { ServerError } from '../client/http-client.ts';
import { tryLock } from '../lib/file-lock.ts';
import { FilesApi } from './files-client.ts';
import { againMs, heartbeatMs } from './keepalive.ts';
import { isAlive } from './process-tree.ts';
import { type Note, SessionStore } from './session-store.ts';

const lookMs = 1_000;
const answerLimitMs = 10_000;
/** A heartbeater that is about to end gives its lock up within this time, and another one may take over. */
const lockLimitMs = 3_000;

/** How `leasehold hook` calls the heartbeater. */
export const daemonCommand = 'keep-alive';

/**
 * Sees to it that an owner's heartbeater runs: a process of its own that outlives the hook and belongs to the agent.
 * Hooks that run at the same time may both start one; all but one of them end at once.
 */
export function ensureDaemon(note: Note, notes: SessionStore): void {
  const before = notes.read(note.owner_id);
  if (
    before?.url !== note.url ||
    before.agent.pid !== note.agent.pid ||
    before.agent.started !== note.agent.started
  ) {
    notes.removeStale();
    notes.write(note);
  }
  const lock = tryLock(notes.lockOf(note.owner_id));
  if (!lock) return;
  lock.release();
  const [, main = ''] = process.argv;
  const args = [...process.execArgv, main, 'hook', daemonCommand, '--', note.owner_id];
  const child = spawn(process.execPath, args, { detached: true, stdio: 'ignore', cwd: notes.folder });
  // Where it cannot be started the lease runs out, and the next hook tries again.
  child.on('error', () => {});
  child.unref();
}

/**
 * Heartbeats for an owner for as long as its note is there and the agent that the note names is alive; the note may
 * come to name another one, when a session is resumed. An agent that is gone has its owner ended, which gives its files
 * back at once. Only one of these runs for an owner: it holds a lock that the kernel drops with its process.
 *
 * It says nothing: nobody listens. The next hook finds out what there is to be said.
 */
export async function keepAlive(ownerId: string, notes = new SessionStore()): Promise<void> {
  if (!notes.read(ownerId)) return;
  const lock = await lockInTime(notes.lockOf(ownerId));
  if (!lock) return;
  let nextBeatMs = performance.now();
  for (let note = notes.read(ownerId); note; note = notes.read(ownerId)) {
    const api = new FilesApi(note.url, { timeoutMs: answerLimitMs });
    if (!isAlive(note.agent)) {
      notes.remove(ownerId);
      await answered(api.end(ownerId));
      // Somebody may have taken the session up meanwhile, and counts on this process, which has the lock.
      continue;
    }
    if (performance.now() >= nextBeatMs) {
      const sentAtMs = performance.now();
      nextBeatMs = sentAtMs + ((await answered(api.heartbeat(ownerId))) ? heartbeatMs : againMs);
    }
    await delay(lookMs);
  }
  lock.release();
}

async function lockInTime(file: string) {
  for (const deadline = performance.now() + lockLimitMs; ; await delay(lookMs)) {
    const lock = tryLock(file);
    if (lock || performance.now() > deadline) return lock;
  }
}

/** Whether somebody answered, whatever it was: an owner that is not alive lives again when it asks for a file. */
async function answered(request: Promise<unknown>): Promise<boolean> {
  try {
    await request;
    return true;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return !error.isUnreachable;
  }
}

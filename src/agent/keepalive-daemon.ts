import { spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { ServerError } from '../client/http-client.ts';
import { tryLock } from '../lib/file-lock.ts';
import { FilesClient } from './files-client.ts';
import { againMs, heartbeatMs } from './keepalive.ts';
import { isAlive } from './process-tree.ts';
import { type Note, SessionStore } from './session-store.ts';

const lookMs = 1_000;
const answerLimitMs = 10_000;
/**
 * A keep-alive process that is about to end releases its lock within this time, so that another one may take
 * over.
 */
const lockLimitMs = 3_000;

/** The `leasehold hook` subcommand of the keep-alive process. */
export const daemonCommand = 'keep-alive';

/**
 * Ensures that an owner's keep-alive process runs. The process outlives the hook and belongs to the agent.
 * Concurrent hooks may both start one; all but one end at once.
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
  // If the process cannot be started, the lease expires, and the next hook tries again.
  child.on('error', () => {});
  child.unref();
}

/**
 * Sends heartbeats for an owner while its note exists and the agent that the note names is alive. The note
 * may name another agent later, when a session is resumed.
 *
 * - When the agent is gone, the process ends the owner, which releases its files at once.
 * - Only one such process runs per owner: it holds a lock that the kernel releases with the process.
 * - The process prints nothing, because its output is discarded. The next hook reports problems.
 */
export async function keepAlive(ownerId: string, notes = new SessionStore()): Promise<void> {
  if (!notes.read(ownerId)) return;
  const lock = await lockInTime(notes.lockOf(ownerId));
  if (!lock) return;
  let nextBeatMs = performance.now();
  for (let note = notes.read(ownerId); note; note = notes.read(ownerId)) {
    const api = new FilesClient(note.url, { timeoutMs: answerLimitMs });
    if (!isAlive(note.agent)) {
      notes.remove(ownerId);
      await answered(api.end(ownerId));
      // Another agent may have resumed the session in the meantime. It relies on this process, which holds
      // the lock.
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

/**
 * Whether a server answered, whatever the answer: an owner that is not alive is revived when it requests a
 * file.
 */
async function answered(request: Promise<unknown>): Promise<boolean> {
  try {
    await request;
    return true;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return !error.isUnreachable;
  }
}

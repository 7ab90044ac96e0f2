/**
 * Wakes whoever waits: for a job to change, for work, for news of a lease, or for what happens to files.
 *
 * Promises: a waiter is woken after every commit of this server that touched its job, soon after every such commit
 * of another server, and in any case every two seconds, so a lost message costs that and nothing else. Whoever waits
 * for work hears of every commit that made some, or made room for some; whoever follows leases hears of those that
 * somebody else has changed. Waking means 'look again'; it may happen for nothing.
 *
 * Servers tell each other over a `Channel`, and only while somebody listens: a server with waiters announces its
 * interest, and again every `announceMs`; the others remember that for three times as long and keep silent
 * otherwise. What one of them committed before it heard of the interest went untold, so it answers that it has heard,
 * and on that answer everybody looks again: they looked before they announced, and what is committed after the answer is
 * told. A server that begins to hear others, or hears them again after it was cut off, has missed what they said and
 * does not know what of its own words they missed: it forgets who listens, asks who does, and has its own look again.
 *
 * `start` begins to listen; `runOnce` wakes everybody; `stop` ends it, waking everybody for the last time.
 */

import type { Service } from '../../lib/async/service.ts';
import { newId } from '../../lib/uuid.ts';
import type { Channel } from '../../store/connection/notify-channel.ts';
import type { WorkAvailable } from './work-available.ts';

const sweepMs = 2_000;
const announceMs = 5_000;
/** A NOTIFY takes 8,000 bytes: so many ids, or so many of streams' names. */
const idsPerMessage = 150;
const namesPerMessage = 7_000;

/** PostgreSQL tells only once what a transaction says twice in the same words, so every message has a number. */
type Message = { from: string; number?: number } & (
  | { jobs: string[] }
  | { leases: string[] }
  | { work: number; streams?: [stream: string, count: number][]; room?: number }
  | { files: true }
  | { waiting: number }
  | { heard: string }
  | { asking: true }
);

/** Hears that a job has changed, or that a sweep asks its waiters to look for changes that nothing reported. */
export type OnJob = (isSweep: boolean) => void;

export class Notifier implements Service {
  readonly #channel: Channel;
  readonly #server = newId();
  readonly #waiters = new Map<string, Set<OnJob>>();
  /** Until when each other server wants to be told, by `performance.now()`. */
  readonly #interested = new Map<string, number>();
  readonly #onWork: ((work: WorkAvailable) => void)[] = [];
  readonly #onLeases: ((leaseIds: readonly string[]) => void)[] = [];
  readonly #onFiles: (() => void)[] = [];
  readonly #onMissed: (() => void)[] = [];
  readonly #onCommit: (() => void)[] = [];
  readonly #counters: (() => number)[] = [];
  #sweep: NodeJS.Timeout | undefined;
  #announcedAt = Number.NEGATIVE_INFINITY;
  #sent = 0;

  constructor(channel: Channel) {
    this.#channel = channel;
  }

  start(): void {
    if (this.#sweep) return;
    this.#channel.start(
      (text) => this.#receive(text),
      () => this.#onListening(),
    );
    this.#sweep = setInterval(() => void this.runOnce(), sweepMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#sweep);
    this.#sweep = undefined;
    await this.runOnce();
    await this.#channel.stop();
  }

  async runOnce(): Promise<void> {
    this.announce();
    this.#wakeAll();
  }

  /** Calls `wake` whenever the job may have changed, until the returned function is called. */
  waitForJob(jobId: string, wake: OnJob): () => void {
    const waiters = this.#waiters.get(jobId) ?? new Set();
    waiters.add(wake);
    this.#waiters.set(jobId, waiters);
    this.announce();
    return () => {
      waiters.delete(wake);
      if (waiters.size === 0 && this.#waiters.get(jobId) === waiters) this.#waiters.delete(jobId);
    };
  }

  /** These jobs were changed by a commit of this server. */
  publishJobs(jobIds: readonly string[]): void {
    if (jobIds.length > 0) this.#notifyCommit();
    if (this.#waiters.size > 0) for (const jobId of jobIds) this.#wake(jobId);
    if (!this.#hasRemoteListeners()) return;
    for (let i = 0; i < jobIds.length; i += idsPerMessage) {
      this.#send({ from: this.#server, jobs: jobIds.slice(i, i + idsPerMessage) });
    }
  }

  /** `listener` hears of work that has come, and of room for it. */
  onWork(listener: (work: WorkAvailable) => void): void {
    this.#onWork.push(listener);
  }

  /** `listener` hears that work may have come, or room for it, of which nobody can tell. */
  onMissed(listener: () => void): void {
    this.#onMissed.push(listener);
  }

  /** `listener` hears of leases that somebody else has changed. */
  onLeases(listener: (leaseIds: readonly string[]) => void): void {
    this.#onLeases.push(listener);
  }

  /** `listener` hears that something has happened to files, and now and then for nothing. */
  onFiles(listener: () => void): void {
    this.#onFiles.push(listener);
  }

  /** `listener` hears of every commit of this server that changed jobs or the capacity, and now and then for nothing. */
  onCommit(listener: () => void): void {
    this.#onCommit.push(listener);
  }

  /** Others that wait here for messages are counted by `count`. */
  addListenerCount(count: () => number): void {
    this.#counters.push(count);
  }

  /** A commit of this server made jobs ready, or room for some. */
  publishWorkAvailable(work: WorkAvailable): void {
    if (work.jobs.size === 0 && work.unitsFreed === 0) return;
    this.#notifyCommit();
    for (const listener of this.#onWork) listener(work);
    if (!this.#hasRemoteListeners()) return;
    for (const [i, jobs] of messagesOf(work).entries()) {
      const room = i === 0 ? work.unitsFreed : 0;
      // The number is for servers of an earlier version, which know nothing of streams.
      const number = (work.jobs.get('') ?? 0) + room;
      this.#send({ from: this.#server, work: number, streams: jobs, room });
    }
  }

  /** Somebody other than their workers has changed these leases. */
  publishLeases(leaseIds: readonly string[]): void {
    if (leaseIds.length === 0) return;
    for (const listener of this.#onLeases) listener(leaseIds);
    if (!this.#hasRemoteListeners()) return;
    for (let i = 0; i < leaseIds.length; i += idsPerMessage) {
      this.#send({ from: this.#server, leases: leaseIds.slice(i, i + idsPerMessage) });
    }
  }

  /** A commit of this server has written what happened to files. */
  publishFiles(): void {
    this.#wakeFiles();
    if (this.#hasRemoteListeners()) this.#send({ from: this.#server, files: true });
  }

  /** Who waits elsewhere has said so before this server could hear it, and who waits here may have been told something. */
  #onListening(): void {
    this.#interested.clear();
    this.#send({ from: this.#server, asking: true });
    this.#announcedAt = Number.NEGATIVE_INFINITY;
    this.announce();
    this.#recheckAll();
  }

  #recheckAll(): void {
    for (const listener of this.#onMissed) listener();
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const jobId of this.#waiters.keys()) this.#wake(jobId, true);
    this.#wakeFiles();
  }

  #notifyCommit(): void {
    for (const listener of this.#onCommit) listener();
  }

  #wakeFiles(): void {
    for (const listener of this.#onFiles) listener();
  }

  #wake(jobId: string, isSweep = false): void {
    for (const wake of this.#waiters.get(jobId) ?? []) wake(isSweep);
  }

  /** Tells the other servers that somebody waits here, unless they know. */
  announce(): void {
    const now = performance.now();
    if (now - this.#announcedAt < announceMs) return;
    const waiting = this.#counters.reduce((sum, count) => sum + count(), this.#waiters.size);
    if (waiting === 0) return;
    this.#announcedAt = now;
    this.#send({ from: this.#server, waiting });
  }

  #hasRemoteListeners(): boolean {
    if (this.#interested.size === 0) return false;
    const now = performance.now();
    for (const [server, until] of this.#interested) if (until < now) this.#interested.delete(server);
    return this.#interested.size > 0;
  }

  #send(message: Message): void {
    this.#channel.send(JSON.stringify({ ...message, number: ++this.#sent }));
  }

  #receive(text: string): void {
    const message = readMessage(text);
    if (!message || message.from === this.#server) return;
    if ('jobs' in message) for (const jobId of message.jobs) this.#wake(jobId);
    else if ('leases' in message) for (const listener of this.#onLeases) listener(message.leases);
    else if ('files' in message) this.#wakeFiles();
    else if ('work' in message) {
      const { work: number, streams = [['', number]], room = number } = message;
      const work = { jobs: new Map(streams), unitsFreed: room };
      for (const listener of this.#onWork) listener(work);
    } else if ('asking' in message) {
      this.#announcedAt = Number.NEGATIVE_INFINITY;
      this.announce();
    } else if ('heard' in message) {
      if (message.heard === this.#server) this.#recheckAll();
    } else this.#noteInterest(message.from);
  }

  #noteInterest(server: string): void {
    const now = performance.now();
    const wasKnown = (this.#interested.get(server) ?? Number.NEGATIVE_INFINITY) >= now;
    this.#interested.set(server, now + 3 * announceMs);
    if (!wasKnown) this.#send({ from: this.#server, heard: server });
  }
}

/** The streams of some work, as many in each message as it may hold. */
function messagesOf({ jobs }: WorkAvailable): [string, number][][] {
  const messages: [string, number][][] = [[]];
  let bytes = 0;
  for (const entry of jobs) {
    const more = Buffer.byteLength(JSON.stringify(entry));
    if (bytes + more > namesPerMessage) {
      messages.push([]);
      bytes = 0;
    }
    bytes += more;
    messages.at(-1)?.push(entry);
  }
  return messages;
}

type MessageField =
  | 'from'
  | 'jobs'
  | 'leases'
  | 'files'
  | 'work'
  | 'streams'
  | 'room'
  | 'waiting'
  | 'heard'
  | 'asking';

/** Anybody who may connect to the database may send a notification; what is not one of ours is left alone. */
function readMessage(text: string): Message | undefined {
  let message: Partial<Record<MessageField, unknown>> | null;
  try {
    message = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof message?.from !== 'string') return undefined;
  const { from, jobs, leases, files, work, streams, room, waiting, heard, asking } = message;
  if (Array.isArray(jobs)) return { from, jobs: jobs.map(String) };
  if (Array.isArray(leases)) return { from, leases: leases.map(String) };
  if (typeof work === 'number') {
    if (!Array.isArray(streams) || typeof room !== 'number') return { from, work };
    return { from, work, streams: streams.filter(isCount).map(([stream, count]) => [stream, count]), room };
  }
  if (files === true) return { from, files };
  if (asking === true) return { from, asking };
  if (typeof heard === 'string') return { from, heard };
  return typeof waiting === 'number' ? { from, waiting } : undefined;
}

const isCount = (entry: unknown): entry is [string, number] =>
  Array.isArray(entry) && typeof entry[0] === 'string' && typeof entry[1] === 'number';

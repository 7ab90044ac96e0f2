/**
 * Wakes waiters: for changes of a job, for available work, for changes of leases, or for events of files.
 *
 * Guarantees:
 * - A waiter is woken after every commit of this server that touched its job, soon after every such commit of
 *   another server, and every two seconds in any case. A lost message therefore costs two seconds at most.
 * - Work listeners are called for every commit that made jobs ready or freed units. Lease listeners are
 *   called for leases that were changed other than by their workers.
 * - A wakeup means 'check again', and may be spurious.
 *
 * Protocol: servers notify each other over a `Channel`, and only while a server listens.
 * - A server with waiters announces its interest, and repeats that every `announceMs`. The others remember it
 *   three times as long, and send nothing otherwise.
 * - Commits before an announcement arrived were not sent. The receiver therefore acknowledges it, and on the
 *   acknowledgement all waiters check again: earlier commits are found by that check, and later ones are
 *   sent.
 * - A server that starts to listen, or listens again after a disconnect, has missed messages and does not
 *   know which of its own were missed. It forgets which servers listen, asks them to announce again, and
 *   wakes its own waiters.
 *
 * Lifecycle: `start` begins to listen; `runOnce` wakes all waiters; `stop` ends it, and wakes them a last
 * time.
 */

import type { Service } from '../../lib/async/service.ts';
import { newId } from '../../lib/uuid.ts';
import type { Channel } from '../../store/connection/notify-channel.ts';
import type { WorkAvailable } from './work-available.ts';

const sweepMs = 2_000;
const announceMs = 5_000;
/** A NOTIFY takes 8,000 bytes: this many ids, or this many bytes of stream names. */
const idsPerMessage = 150;
const namesPerMessage = 7_000;

/** PostgreSQL delivers identical messages of a transaction only once, so every message has a number. */
type Message = { from: string; number?: number } & (
  | { jobs: string[] }
  | { leases: string[] }
  | { work: number; streams?: [stream: string, count: number][]; room?: number }
  | { files: true }
  | { waiting: number }
  | { heard: string }
  | { asking: true }
);

/** A job has changed, or a sweep asks its waiters to check for changes that no message reported. */
export type OnJob = (isSweep: boolean) => void;

export class Notifier implements Service {
  readonly #channel: Channel;
  readonly #server = newId();
  readonly #waiters = new Map<string, Set<OnJob>>();
  /** Until when each other server wants messages, by `performance.now()`. */
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

  /** A commit of this server changed these jobs. */
  publishJobs(jobIds: readonly string[]): void {
    if (jobIds.length > 0) this.#notifyCommit();
    if (this.#waiters.size > 0) for (const jobId of jobIds) this.#wake(jobId);
    if (!this.#hasRemoteListeners()) return;
    for (let i = 0; i < jobIds.length; i += idsPerMessage) {
      this.#send({ from: this.#server, jobs: jobIds.slice(i, i + idsPerMessage) });
    }
  }

  /** `listener` is called for ready jobs and freed units. */
  onWork(listener: (work: WorkAvailable) => void): void {
    this.#onWork.push(listener);
  }

  /** `listener` is called when messages about available work may have been lost. */
  onMissed(listener: () => void): void {
    this.#onMissed.push(listener);
  }

  /** `listener` is called for leases that were changed other than by their workers. */
  onLeases(listener: (leaseIds: readonly string[]) => void): void {
    this.#onLeases.push(listener);
  }

  /** `listener` is called for events of files, and sometimes without one. */
  onFiles(listener: () => void): void {
    this.#onFiles.push(listener);
  }

  /**
   * `listener` is called for every commit of this server that changed jobs or the capacity, and sometimes
   * without one.
   */
  onCommit(listener: () => void): void {
    this.#onCommit.push(listener);
  }

  /** Adds a count of other listeners on this server. */
  addListenerCount(count: () => number): void {
    this.#counters.push(count);
  }

  /** A commit of this server made jobs ready or freed units. */
  publishWorkAvailable(work: WorkAvailable): void {
    if (work.jobs.size === 0 && work.unitsFreed === 0) return;
    this.#notifyCommit();
    for (const listener of this.#onWork) listener(work);
    if (!this.#hasRemoteListeners()) return;
    for (const [i, jobs] of messagesOf(work).entries()) {
      const room = i === 0 ? work.unitsFreed : 0;
      // The number is for servers of an earlier version, which do not know streams.
      const number = (work.jobs.get('') ?? 0) + room;
      this.#send({ from: this.#server, work: number, streams: jobs, room });
    }
  }

  /** These leases were changed other than by their workers. */
  publishLeases(leaseIds: readonly string[]): void {
    if (leaseIds.length === 0) return;
    for (const listener of this.#onLeases) listener(leaseIds);
    if (!this.#hasRemoteListeners()) return;
    for (let i = 0; i < leaseIds.length; i += idsPerMessage) {
      this.#send({ from: this.#server, leases: leaseIds.slice(i, i + idsPerMessage) });
    }
  }

  /** A commit of this server wrote events of files. */
  publishFiles(): void {
    this.#wakeFiles();
    if (this.#hasRemoteListeners()) this.#send({ from: this.#server, files: true });
  }

  /**
   * Other servers may have announced their interest unheard, and messages for this server's waiters may have
   * been lost.
   */
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

  /** Announces to the other servers that this one has waiters, unless they know already. */
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

/** The streams of the available work, split by the size of a message. */
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

/** Any client of the database may send a notification; unknown messages are ignored. */
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

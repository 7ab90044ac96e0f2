/**
 * Maps every lease to the stream that extended it last, so that the server can push changes of the lease to
 * its worker: a cancellation, an expiry, or the shutdown of the server.
 *
 * Guarantees:
 * - A change of a lease goes only to the subscription that extended it last. A closed subscription receives
 *   nothing more.
 * - A lease is forgotten when it is lost, and some time after it would have expired, so that released leases
 *   are not kept forever.
 * - How and when a subscription closed is kept as long. It may explain an expiry; see `lastDisconnectOf`.
 * - Nothing here is durable, and leases that were extended elsewhere last are not covered. The next heartbeat
 *   reports what was missed.
 *
 * Memory: one server carries a million leases. They are kept as numbers in flat tables, at 24 bytes a slot
 * and 50 MB for a million, which the garbage collector does not traverse. There are 256 tables that grow one
 * by one, so that no heartbeat waits while a million entries are moved. A full table reclaims the slots of
 * ended leases; this takes no timer and has a constant amortized cost. The tables hold the whole id instead
 * of a hash, because `drain` must name every lease.
 *
 * Lifecycle: ends with `drain`. It passes all leases to their subscriptions, one table at a time so that
 * other tasks can run, and then calls `onDrained`. A later subscription gets `onDrained` at once.
 */
import type { StreamEnd } from '../../domain/explain/facts.ts';
import type { Verdict } from '../../domain/leases/lease.ts';
import { isOver } from '../../domain/leases/lease-policy.ts';

/** How long an entry outlives its lease, so that the expiry can still be delivered. */
const afterlifeS = 60;
/** Closed subscriptions that are remembered. In a storm of reconnects the last closed ones matter most. */
const closedMax = 20_000;
const tableCount = 256;
const slotsFirst = 16;
/** Four words of id, the subscription's number, and the second after which the entry may be reclaimed. */
const wordsPerSlot = 6;
const followerWord = 4;
const untilWord = 5;
/** A table filled beyond the first share is rebuilt, and is then filled to the second at most. */
const fullest = 0.75;
const roomiest = 0.5;

export interface LeaseListener {
  /** These leases have changed. */
  onLeasesChanged(leaseIds: readonly string[]): void;
  /** The server is about to stop, and has announced all leases. */
  onDrained(): void;
}

export interface Subscription {
  /** Heartbeats with their verdicts. Changes of the extended leases go to this subscription from now on. */
  onHeartbeat(leases: readonly { leaseId: string }[], verdicts: readonly Verdict[]): void;
  /** These leases are lost; their changes are not delivered any more. */
  unsubscribe(leaseIds: readonly string[]): void;
  close(how: StreamEnd): void;
}

/** How a subscription closed, and how long ago. */
export interface Disconnect {
  how: StreamEnd;
  agoMs: number;
}

export interface LeaseSubscriptionsOptions {
  /** A monotonic clock; default `performance.now`. */
  nowMs?: () => number;
  /** Called when a stream subscribes, so that other servers learn that this one has listeners. */
  onSubscribe?: () => void;
}

export class LeaseSubscriptions {
  readonly #nowMs: () => number;
  readonly #onFollow: () => void;
  readonly #listeners = new Map<number, LeaseListener>();
  /** How and when subscriptions closed, in that order. */
  readonly #closed = new Map<number, { how: StreamEnd; atMs: number }>();
  readonly #tables: LeaseTable[];
  #lastFollower = 0;
  #drained: Promise<void> | undefined;
  #over = false;

  constructor({ nowMs = () => performance.now(), onSubscribe = () => {} }: LeaseSubscriptionsOptions = {}) {
    this.#nowMs = nowMs;
    this.#onFollow = onSubscribe;
    const lives = (follower: number, untilS: number) =>
      (this.#listeners.has(follower) || this.#closed.has(follower)) && untilS * 1000 > this.#nowMs();
    this.#tables = Array.from({ length: tableCount }, () => new LeaseTable(lives));
  }

  /** Number of slots, for the memory metric. */
  get slots(): number {
    return this.#tables.reduce((sum, { slots }) => sum + slots, 0);
  }

  /** Number of subscribed streams. */
  get subscriptions(): number {
    return this.#listeners.size;
  }

  subscribe(listener: LeaseListener): Subscription {
    const follower = this.#newNumber();
    this.#listeners.set(follower, listener);
    this.#onFollow();
    if (this.#over) listener.onDrained();
    const forget = (leaseId: string) => {
      const id = readId(leaseId);
      this.#tableOf(id).forget(id, follower);
    };
    return {
      unsubscribe: (leaseIds) => leaseIds.forEach(forget),
      onHeartbeat: (leases, verdicts) => {
        if (!this.#listeners.has(follower)) return;
        const nowMs = this.#nowMs();
        for (let i = 0; i < leases.length; i++) {
          const verdict = verdicts[i] as Verdict;
          const { leaseId } = leases[i] as { leaseId: string };
          // One stream may serve many workers. A stranger's heartbeat says nothing about the worker that
          // holds the lease.
          if (verdict.kind === 'lost' && isOver(verdict)) forget(leaseId);
          if (verdict.kind === 'lost') continue;
          const id = readId(leaseId);
          const untilS = Math.ceil((nowMs + verdict.ttlRemainingMs) / 1000) + afterlifeS;
          this.#tableOf(id).put(id, follower, untilS);
        }
      },
      close: (how) => this.#close(follower, how),
    };
  }

  /** How the subscription that extended a lease last has closed; undefined if it is open or unknown here. */
  lastDisconnectOf(leaseId: string | null): Disconnect | undefined {
    if (leaseId === null) return undefined;
    const id = readId(leaseId);
    const closed = this.#closed.get(this.#tableOf(id).find(id));
    return closed && { how: closed.how, agoMs: this.#nowMs() - closed.atMs };
  }

  #close(follower: number, how: StreamEnd): void {
    if (!this.#listeners.delete(follower)) return;
    this.#closed.set(follower, { how, atMs: this.#nowMs() });
    const [oldest] = this.#closed.keys();
    if (this.#closed.size > closedMax) this.#closed.delete(oldest as number);
  }

  /**
   * Publishes leases that were changed other than by a heartbeat: a cancellation was requested, or they
   * expired.
   */
  publish(leaseIds: readonly string[]): void {
    if (this.#listeners.size === 0) return;
    const news = new Map<LeaseListener, string[]>();
    for (const leaseId of leaseIds) {
      const id = readId(leaseId);
      this.#add(news, this.#tableOf(id).find(id), leaseId);
    }
    tell(news);
  }

  /** Announces the shutdown. Settles when every subscription has received all its leases. */
  drain(): Promise<void> {
    this.#drained ??= (async () => {
      for (const table of this.#tables) {
        const news = new Map<LeaseListener, string[]>();
        table.each((leaseId, follower) => this.#add(news, follower, leaseId));
        tell(news);
        if (news.size > 0) await new Promise((resolve) => setImmediate(resolve));
      }
      this.#over = true;
      for (const listener of [...this.#listeners.values()]) listener.onDrained();
    })();
    return this.#drained;
  }

  #add(news: Map<LeaseListener, string[]>, follower: number, leaseId: string): void {
    const listener = this.#listeners.get(follower);
    if (!listener) return;
    const leaseIds = news.get(listener);
    if (leaseIds) leaseIds.push(leaseId);
    else news.set(listener, [leaseId]);
  }

  /** The last word of an id is random, so its last byte distributes leases evenly. */
  #tableOf(id: Uint32Array): LeaseTable {
    return this.#tables[(id[3] as number) % tableCount] as LeaseTable;
  }

  /** Numbers fit into a word of the table; 0 marks free slots. */
  #newNumber(): number {
    do this.#lastFollower = (this.#lastFollower % 0xffff_fffe) + 1;
    while (this.#listeners.has(this.#lastFollower) || this.#closed.has(this.#lastFollower));
    return this.#lastFollower;
  }
}

function tell(news: ReadonlyMap<LeaseListener, readonly string[]>): void {
  for (const [listener, leaseIds] of news) listener.onLeasesChanged(leaseIds);
}

/** Some leases and the subscriptions that extended them last. Open addressing with linear probing. */
class LeaseTable {
  readonly #lives: (follower: number, untilS: number) => boolean;
  #words = new Uint32Array(slotsFirst * wordsPerSlot);
  #filled = 0;

  constructor(lives: (follower: number, untilS: number) => boolean) {
    this.#lives = lives;
  }

  get slots(): number {
    return this.#words.length / wordsPerSlot;
  }

  put(id: Uint32Array, follower: number, untilS: number): void {
    let at = this.#slotOf(id);
    if (this.#words[at + followerWord] === 0) {
      if (this.#filled + 1 > this.slots * fullest) {
        this.#rebuild();
        at = this.#slotOf(id);
      }
      this.#words.set(id, at);
      this.#filled++;
    }
    this.#words[at + followerWord] = follower;
    this.#words[at + untilWord] = untilS;
  }

  /** The slot stays taken, because entries may follow it in the probe sequence. The entry itself is void. */
  forget(id: Uint32Array, follower: number): void {
    const at = this.#slotOf(id);
    if (this.#words[at + followerWord] === follower) this.#words[at + untilWord] = 0;
  }

  /** The subscription that extended the lease last, or 0. */
  find(id: Uint32Array): number {
    const at = this.#slotOf(id);
    return this.#words[at + untilWord] === 0 ? 0 : (this.#words[at + followerWord] as number);
  }

  each(visit: (leaseId: string, follower: number) => void): void {
    const words = this.#words;
    for (let at = 0; at < words.length; at += wordsPerSlot) {
      const follower = words[at + followerWord] as number;
      if (follower !== 0 && this.#lives(follower, words[at + untilWord] as number)) {
        visit(writeId(words.subarray(at, at + 4)), follower);
      }
    }
  }

  /** The slot of the lease, or the one where it would be put. */
  #slotOf(id: Uint32Array): number {
    const words = this.#words;
    const mask = this.slots - 1;
    const [a, b, c, d] = [id[0], id[1], id[2], id[3] as number];
    // The last byte is the same, or nearly so, for all leases of a table.
    let slot = (d >>> 8) & mask;
    for (;;) {
      const at = slot * wordsPerSlot;
      if (words[at + followerWord] === 0) return at;
      if (words[at + 3] === d && words[at + 2] === c && words[at + 1] === b && words[at] === a) return at;
      slot = (slot + 1) & mask;
    }
  }

  /** Drops void and expired entries, and resizes the table for the rest. */
  #rebuild(): void {
    const old = this.#words;
    const kept: number[] = [];
    for (let at = 0; at < old.length; at += wordsPerSlot) {
      const follower = old[at + followerWord] as number;
      if (follower !== 0 && this.#lives(follower, old[at + untilWord] as number)) kept.push(at);
    }
    let slots = slotsFirst;
    while (kept.length + 1 > slots * roomiest) slots *= 2;
    this.#words = new Uint32Array(slots * wordsPerSlot);
    this.#filled = kept.length;
    for (const at of kept) {
      const one = old.subarray(at, at + wordsPerSlot);
      this.#words.set(one, this.#slotOf(one));
    }
  }
}

/** One id is looked up at a time, and is used before the next is read. */
const words = new Uint32Array(4);

/** A lower-case UUID as four words. */
function readId(leaseId: string): Uint32Array {
  words[0] = (digits(leaseId, 0) << 16) | digits(leaseId, 4);
  words[1] = (digits(leaseId, 9) << 16) | digits(leaseId, 14);
  words[2] = (digits(leaseId, 19) << 16) | digits(leaseId, 24);
  words[3] = (digits(leaseId, 28) << 16) | digits(leaseId, 32);
  return words;
}

/** Four digits as a number. */
const digits = (text: string, at: number): number =>
  (digit(text.charCodeAt(at)) << 12) |
  (digit(text.charCodeAt(at + 1)) << 8) |
  (digit(text.charCodeAt(at + 2)) << 4) |
  digit(text.charCodeAt(at + 3));

/** '0' to '9' are 48 to 57, 'a' to 'f' are 97 to 102. */
const digit = (code: number): number => (code < 58 ? code - 48 : code - 87) & 0xf;

function writeId(id: Uint32Array): string {
  let hex = '';
  for (const word of id) hex += word.toString(16).padStart(8, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/**
 * Knows which stream every lease was last kept on, so that what the server learns of a lease by itself reaches its worker:
 * a cancellation, an expiry, that the server is about to stop.
 *
 * Promises: news of a lease goes to the follower that kept it last, and to nobody else; one that has closed hears
 * nothing more. A lease is forgotten when it is lost, and a while after it would have expired, so that leases which were
 * released are not remembered for ever. That its follower has closed, when and how, is remembered for as long: it may
 * be why the lease expired, and `closingOf` says so. Nothing here is durable, and nothing
 * is promised of leases that were last kept elsewhere: what is missed is told with the next heartbeat.
 *
 * One server carries a million leases, so they are kept as numbers in flat tables, at 24 bytes a slot and 50 MB for a
 * million, with nothing in them for the garbage collector to walk over. There are 256 tables, which grow one by one,
 * so that no heartbeat waits for a million others to be moved. Slots of what is over are reclaimed when their table is
 * full; that takes no timer, and costs every entry a constant share.
 *
 * The whole id is kept and not a hash of it, because `drain` has to name every lease. `drain` is the end: it hands
 * every follower all its leases as news, a table at a time so that others get their turn, and then tells it that there
 * is no more to come. A follower that comes later is told so at once.
 */
import type { StreamEnd } from '../../domain/explain/facts.ts';
import type { Verdict } from '../../domain/leases/lease.ts';
import { isOver } from '../../domain/leases/lease-policy.ts';

/** How long an entry outlives its lease, so that there is somebody to be told of the expiry. */
const afterlifeS = 60;
/** Closed followers that are remembered; of those who reconnect in a storm the last closed matter most. */
const closedMax = 20_000;
const tableCount = 256;
const slotsFirst = 16;
/** Four words of id, the follower's number, and the second after which nobody needs to know. */
const wordsPerSlot = 6;
const followerWord = 4;
const untilWord = 5;
/** A table that is filled beyond the first share is rebuilt, so that it is filled to the second at the most. */
const fullest = 0.75;
const roomiest = 0.5;

export interface LeaseListener {
  /** These leases have something new to be told of. */
  onLeasesChanged(leaseIds: readonly string[]): void;
  /** The server is about to stop, and has told of all leases. */
  onDrained(): void;
}

export interface Subscription {
  /** What became of heartbeats: news of the leases that were extended goes to this follower from now on. */
  onHeartbeat(leases: readonly { leaseId: string }[], verdicts: readonly Verdict[]): void;
  /** These leases are lost; there will be no news of them. */
  unsubscribe(leaseIds: readonly string[]): void;
  close(how: StreamEnd): void;
}

/** How a follower closed, and how long ago. */
export interface Disconnect {
  how: StreamEnd;
  agoMs: number;
}

export interface LeaseSubscriptionsOptions {
  /** A clock that only rises; `performance.now` where left out. */
  nowMs?: () => number;
  /** Called when a stream begins to follow, so that other servers can be told that there is somebody to tell. */
  onSubscribe?: () => void;
}

export class LeaseSubscriptions {
  readonly #nowMs: () => number;
  readonly #onFollow: () => void;
  readonly #listeners = new Map<number, LeaseListener>();
  /** How followers have closed and when, in the order in which they did. */
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

  /** How many leases there is room for, told to those who watch over memory. */
  get slots(): number {
    return this.#tables.reduce((sum, { slots }) => sum + slots, 0);
  }

  /** How many streams want to be told. */
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
          // One stream may serve many workers, and a stranger's word says nothing of the one that keeps the lease.
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

  /** Whether the follower that kept a lease last has closed; undefined where it lives, or was not here. */
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

  /** Somebody changed these leases other than by a heartbeat: a cancellation was asked for, or they expired. */
  publish(leaseIds: readonly string[]): void {
    if (this.#listeners.size === 0) return;
    const news = new Map<LeaseListener, string[]>();
    for (const leaseId of leaseIds) {
      const id = readId(leaseId);
      this.#add(news, this.#tableOf(id).find(id), leaseId);
    }
    tell(news);
  }

  /** The server is about to stop. Settles when every follower has been handed all its leases. */
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

  /** The last word of an id is random, so its last byte deals leases out evenly. */
  #tableOf(id: Uint32Array): LeaseTable {
    return this.#tables[(id[3] as number) % tableCount] as LeaseTable;
  }

  /** Numbers fit into a word of the table; 0 is for slots that are free. */
  #newNumber(): number {
    do this.#lastFollower = (this.#lastFollower % 0xffff_fffe) + 1;
    while (this.#listeners.has(this.#lastFollower) || this.#closed.has(this.#lastFollower));
    return this.#lastFollower;
  }
}

function tell(news: ReadonlyMap<LeaseListener, readonly string[]>): void {
  for (const [listener, leaseIds] of news) listener.onLeasesChanged(leaseIds);
}

/** Some leases and who kept them last: open addressing, the next free slot where the right one is taken. */
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

  /** The slot stays taken, because others may have been put behind it; it is not worth remembering any more. */
  forget(id: Uint32Array, follower: number): void {
    const at = this.#slotOf(id);
    if (this.#words[at + followerWord] === follower) this.#words[at + untilWord] = 0;
  }

  /** Who kept the lease last, or 0. */
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

  /** Where the lease is, or where it would be put. */
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

  /** Leaves out what is over, and makes as much room as the rest needs. */
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

/** One id at a time is looked up, and each is used before the next is read. */
const words = new Uint32Array(4);

/** A UUID in lower case as four words. */
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

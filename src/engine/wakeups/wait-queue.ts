/**
 * Requests that wait for work, in the order of their arrival.
 *
 * Guarantees:
 * - A waiter is woken when there may be work for it, when its time is up, or when its caller disconnects.
 * - A ready job wakes only the first waiter for its stream. A waiter that cannot use the job passes the
 *   wakeup on: to the next waiter of another request class, or also of its own class if only this worker was
 *   barred.
 * - Freed units wake the request classes that lacked them. How many requests fit is unknown, so a woken one
 *   that is granted wakes two more. This uses up the freed units without waking a herd.
 * - A wakeup means 'ask again'. A request that is denied again returns to its old position.
 * - Every `sweepMs`, and whenever messages may have been lost, `findReady` names the streams that have jobs.
 *   The first waiter of each stream is woken. The number of jobs is unknown here too, so one that is granted
 *   wakes two more.
 * - Work that arrives while requests are running is not lost, although their queries may have missed it. As
 *   many requests of each class as there were no waiters for do not wait, but ask again.
 * - A woken waiter that leaves without having asked passes the wakeup on.
 *
 * Lifecycle: there is no timer while no request waits. `stop` wakes all waiters.
 */
import type { WorkAvailable } from './work-available.ts';

const sweepMs = 2_000;
/** How many waiters a granted one wakes. */
const wakesWhenServed = 2;

/** Requests with the same filter and TTL. */
export interface RequestClass {
  /** The whole request as one text. */
  readonly name: string;
  /** The streams whose jobs match; '' stands for jobs without a stream. */
  readonly streams: readonly string[];
}

/** A request's entry in the queue, from before its first attempt until it leaves. */
export interface Waiter {
  readonly group: WaiterGroup;
  readonly number: number;
  /** Wakes the waiter; undefined while its request is running. */
  wake: (() => void) | undefined;
  /** What it was woken for, until it waits again. */
  wakeup: Wakeup | undefined;
}

/** The reason of a wakeup: a job of a stream, which may have more, or freed units. */
type Wakeup = { for: 'jobs'; stream: string; mayBeMore: boolean } | { for: 'room' };

/** What a request was denied for: `barred` if there are jobs, but none for this worker. */
export type WaitReason = 'jobs' | 'room' | 'barred';

/** The waiters of one request class. */
interface WaiterGroup {
  readonly requestClass: RequestClass;
  /** The waiters, by their numbers. */
  waiting: Waiter[];
  /** Number of entries, waiting or running. */
  capacity: number;
  /** Wakeups for which there was no waiter, and their reason. */
  pendingWakeups: number;
  pendingWakeup: Wakeup;
}

export interface WaitQueueOptions<K extends RequestClass> {
  /** Streams of these request classes that have jobs ready to be taken. */
  findReady(classes: readonly K[]): Promise<Iterable<string>>;
}

export class WaitQueue<K extends RequestClass = RequestClass> {
  readonly #findReady: WaitQueueOptions<K>['findReady'];
  readonly #groups = new Map<string, WaiterGroup>();
  readonly #byStream = new Map<string, Set<WaiterGroup>>();
  /** Groups whose last denial was for lack of capacity. */
  readonly #blockedOnCapacity = new Set<WaiterGroup>();
  /** Groups with running requests. */
  readonly #asking = new Set<WaiterGroup>();
  #length = 0;
  #lastNumber = 0;
  #sweep: NodeJS.Timeout | undefined;
  #sweeping = false;
  #rechecks = false;
  #stopped = false;

  constructor({ findReady }: WaitQueueOptions<K>) {
    this.#findReady = findReady;
  }

  /** Number of waiters. */
  get length(): number {
    return this.#length;
  }

  /** Adds an entry, which must be removed with `leave`. */
  join(requestClass: K): Waiter {
    const group = this.#groups.get(requestClass.name) ?? this.#open(requestClass);
    group.capacity++;
    this.#asking.add(group);
    return { group, number: ++this.#lastNumber, wake: undefined, wakeup: undefined };
  }

  /** Removes the entry, granted or not. */
  leave(waiter: Waiter, served: boolean): void {
    const { group, wakeup } = waiter;
    group.capacity--;
    this.#noteAsking(group);
    group.pendingWakeups = Math.min(group.pendingWakeups, askingIn(group));
    if (!served && wakeup?.for === 'jobs') this.#callForJobs(wakeup, 1, { after: waiter });
    else if (!served && wakeup) this.#wakeGroup(group, 1, wakeup);
    else if (served && wakeup?.for !== 'jobs') this.#wakeGroup(group, wakesWhenServed, room);
    // Otherwise as many waiters were woken as there are jobs.
    else if (wakeup?.for === 'jobs' && wakeup.mayBeMore) this.#callForJobs(wakeup, wakesWhenServed);
    if (group.capacity === 0) this.#close(group);
  }

  /** Waits to be woken, at most this long, after a denial for lack of jobs or of capacity. */
  wait(waiter: Waiter, ms: number, wants: WaitReason, signal?: AbortSignal): Promise<void> {
    const { group, wakeup } = waiter;
    waiter.wakeup = undefined;
    if (wants === 'jobs') this.#blockedOnCapacity.delete(group);
    else this.#blockedOnCapacity.add(group);
    if (wakeup?.for === 'jobs' && wants !== 'room') {
      this.#callForJobs(wakeup, 1, { after: waiter, except: wants === 'barred' ? undefined : group });
    }
    if (this.#stopped || signal?.aborted) return Promise.resolve();
    if (group.pendingWakeups > 0) {
      group.pendingWakeups--;
      waiter.wakeup = group.pendingWakeup;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', wake);
        waiter.wake = undefined;
        group.waiting.splice(group.waiting.indexOf(waiter), 1);
        this.#length--;
        this.#noteAsking(group);
        this.#rest();
        resolve();
      };
      const timer = setTimeout(wake, ms);
      signal?.addEventListener('abort', wake, { once: true });
      waiter.wake = wake;
      // Most are new and go to the end.
      const before = group.waiting.findLastIndex(({ number }) => number < waiter.number);
      group.waiting.splice(before + 1, 0, waiter);
      this.#length++;
      this.#noteAsking(group);
      this.#sweep ??= setInterval(() => void this.#sweepOnce(), sweepMs);
    });
  }

  /** Wakes waiters for work that became available. */
  wakeFor({ jobs, unitsFreed: count }: WorkAvailable): void {
    for (const [stream, jobCount] of jobs)
      this.#callForJobs({ for: 'jobs', stream, mayBeMore: false }, jobCount);
    if (count === 0) return;
    for (const group of new Set([...this.#blockedOnCapacity, ...this.#asking]))
      this.#wakeGroup(group, count, room);
  }

  /** Work may have become available without a message. */
  recheck(): void {
    if (this.#groups.size === 0) return;
    // A running sweep may have queried too early, and then repeats itself.
    this.#rechecks = true;
    void this.#sweepOnce();
  }

  stop(): void {
    this.#stopped = true;
    for (const group of [...this.#groups.values()]) wakeFirst(group, Number.POSITIVE_INFINITY, room);
  }

  #open(requestClass: RequestClass): WaiterGroup {
    const group: WaiterGroup = {
      requestClass,
      waiting: [],
      capacity: 0,
      pendingWakeups: 0,
      pendingWakeup: room,
    };
    this.#groups.set(requestClass.name, group);
    for (const stream of requestClass.streams) {
      const groups = this.#byStream.get(stream) ?? new Set();
      this.#byStream.set(stream, groups.add(group));
    }
    return group;
  }

  #close(group: WaiterGroup): void {
    this.#groups.delete(group.requestClass.name);
    this.#blockedOnCapacity.delete(group);
    for (const stream of group.requestClass.streams) {
      const groups = this.#byStream.get(stream);
      groups?.delete(group);
      if (groups?.size === 0) this.#byStream.delete(stream);
    }
  }

  /** Wakes the first waiters of a stream, after one that could not use the wakeup. */
  #callForJobs(call: JobsCall, count: number, { after, except }: PassedOn = {}): void {
    const groups = [...(this.#byStream.get(call.stream) ?? [])].filter((group) => group !== except);
    const first = firstWaiting(groups, count, after?.number ?? 0);
    for (const waiter of first) wakeWaiter(waiter, call);
    const left = count - first.length;
    if (left === 0) return;
    for (const group of groups) {
      const asking = askingIn(group) - first.filter((waiter) => waiter.group === group).length;
      this.#keepWakeup(group, Math.min(group.pendingWakeups + left, asking), call);
    }
  }

  #wakeGroup(group: WaiterGroup, count: number, call: Wakeup): void {
    const woken = wakeFirst(group, count, call);
    this.#keepWakeup(group, Math.min(group.pendingWakeups + count - woken, askingIn(group) - woken), call);
  }

  #keepWakeup(group: WaiterGroup, missed: number, call: Wakeup): void {
    // If both were missed, a request that asks because of freed units, or of possibly more jobs, finds the
    // jobs as well.
    const { pendingWakeup } = group;
    const isKept = group.pendingWakeups > 0 && (pendingWakeup.for === 'room' || pendingWakeup.mayBeMore);
    if (missed > group.pendingWakeups && !isKept) group.pendingWakeup = call;
    group.pendingWakeups = missed;
  }

  #noteAsking(group: WaiterGroup): void {
    if (askingIn(group) > 0) this.#asking.add(group);
    else this.#asking.delete(group);
  }

  async #sweepOnce(): Promise<void> {
    if (this.#sweeping) return;
    this.#sweeping = true;
    try {
      do {
        this.#rechecks = false;
        const waiting = [...this.#groups.values()].filter(({ waiting }) => waiting.length > 0);
        const classes = waiting.map(({ requestClass }) => requestClass as K);
        for (const stream of await this.#findReady(classes))
          this.#callForJobs({ for: 'jobs', stream, mayBeMore: true }, 1);
      } while (this.#rechecks);
    } catch {
      // The database is unavailable. Waiting requests would learn that from their next attempt; the sweep is
      // repeated.
    } finally {
      this.#sweeping = false;
    }
  }

  #rest(): void {
    if (this.#length > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }
}

type JobsCall = Extract<Wakeup, { for: 'jobs' }>;

/** The waiter that passes a wakeup on, and a group that cannot use it either. */
interface PassedOn {
  after?: Waiter;
  except?: WaiterGroup | undefined;
}

const room: Wakeup = { for: 'room' };

const askingIn = ({ capacity, waiting }: WaiterGroup): number => capacity - waiting.length;

/** The first waiters of all groups that came after a position, up to the count. */
function firstWaiting(groups: readonly WaiterGroup[], count: number, after: number): Waiter[] {
  const first: Waiter[] = [];
  for (const { waiting } of groups) {
    let taken = 0;
    for (const waiter of waiting) {
      // All further waiters of this group came after the last one chosen so far.
      if (taken === count || (first.length >= count && waiter.number > (first.at(-1)?.number ?? 0))) break;
      if (waiter.number <= after) continue;
      taken++;
      const at = first.findLastIndex(({ number }) => number < waiter.number);
      first.splice(at + 1, 0, waiter);
      if (first.length > count) first.pop();
    }
  }
  return first;
}

function wakeFirst({ waiting }: WaiterGroup, count: number, call: Wakeup): number {
  const first = waiting.slice(0, count);
  for (const waiter of first) wakeWaiter(waiter, call);
  return first.length;
}

function wakeWaiter(waiter: Waiter, call: Wakeup): void {
  waiter.wakeup = call;
  waiter.wake?.();
}

/**
 * Where callers wait for work, in the order in which they came.
 *
 * Promises: whoever waits is let go when there may be something for them, when their time is over, or when they have
 * gone. A job that comes calls the first who asks for its stream, and nobody else; one who can do nothing with it passes
 * the call on, to the next of another kind, or of their own where it was they alone who could not. Room that comes wakes
 * those who lacked it. How many find a place in the room is known to nobody, so one of them that got something wakes two
 * more: what came free is found without waking a herd. Being woken means 'ask again'; who asks in vain comes back to
 * their old place. Every `sweepMs`, in case a message was lost, and whenever it is known that something may have come of
 * which no message told, it is asked once for which of the kinds that wait there are jobs, and the first who waits for each of
 * their streams is called. How many jobs there are is not known then either, so one of them that
 * got something calls two more.
 *
 * Nothing is lost on those who are asking while something comes, and may have looked just before it did: as many of
 * each kind as there was nobody else to call for do not wait, but ask again. Who was woken and leaves without having
 * asked passes the call on.
 *
 * It holds no timer while nobody waits. `stop` lets everybody go.
 */
import type { WorkAvailable } from './work-available.ts';

const sweepMs = 2_000;
/** Whom one that got something wakes. */
const wakesWhenServed = 2;

/** Callers who ask for the same. */
export interface RequestClass {
  /** All that they ask for, as one text. */
  readonly name: string;
  /** The streams whose jobs would do; the empty one stands for none. */
  readonly streams: readonly string[];
}

/** Somebody's place in the line, from before they ask for the first time until they leave. */
export interface Waiter {
  readonly line: WaiterGroup;
  readonly number: number;
  /** Lets them go; undefined while they ask. */
  wake: (() => void) | undefined;
  /** What they were woken for, until they wait again. */
  wakeup: Wakeup | undefined;
}

/** What somebody was woken for: a job of a stream, of which there may be more, or room. */
type Wakeup = { for: 'jobs'; stream: string; mayBeMore: boolean } | { for: 'room' };

/** What somebody asked in vain for: `barred` where there are jobs, though none for this one worker. */
export type WaitReason = 'jobs' | 'room' | 'barred';

interface WaiterGroup {
  readonly kind: RequestClass;
  /** Those who wait, by their numbers. */
  waiting: Waiter[];
  /** How many have a place, waiting or asking. */
  capacity: number;
  /** For so much that came there was nobody to wake, and what it was. */
  pendingWakeups: number;
  pendingWakeup: Wakeup;
}

export interface WaitQueueOptions<K extends RequestClass> {
  /** Streams of these kinds for which there are jobs that may be taken now. */
  findReady(kinds: readonly K[]): Promise<Iterable<string>>;
}

export class WaitQueue<K extends RequestClass = RequestClass> {
  readonly #findReady: WaitQueueOptions<K>['findReady'];
  readonly #groups = new Map<string, WaiterGroup>();
  readonly #byStream = new Map<string, Set<WaiterGroup>>();
  /** Lines whose last answer was that there is no room. */
  readonly #blockedOnCapacity = new Set<WaiterGroup>();
  /** Lines some of which are asking. */
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

  /** How many wait. */
  get length(): number {
    return this.#length;
  }

  /** Takes a place, which has to be left. */
  join(kind: K): Waiter {
    const line = this.#groups.get(kind.name) ?? this.#open(kind);
    line.capacity++;
    this.#asking.add(line);
    return { line, number: ++this.#lastNumber, wake: undefined, wakeup: undefined };
  }

  /** Leaves for good, with something or without. */
  leave(place: Waiter, served: boolean): void {
    const { line, wakeup } = place;
    line.capacity--;
    this.#noteAsking(line);
    line.pendingWakeups = Math.min(line.pendingWakeups, askingIn(line));
    if (!served && wakeup?.for === 'jobs') this.#callForJobs(wakeup, 1, { after: place });
    else if (!served && wakeup) this.#wakeGroup(line, 1, wakeup);
    else if (served && wakeup?.for !== 'jobs') this.#wakeGroup(line, wakesWhenServed, room);
    // Otherwise as many were called as there are jobs.
    else if (wakeup?.for === 'jobs' && wakeup.mayBeMore) this.#callForJobs(wakeup, wakesWhenServed);
    if (line.capacity === 0) this.#close(line);
  }

  /** Waits to be woken, for so long at the most, after having asked in vain: for want of jobs, or of room for them. */
  wait(place: Waiter, ms: number, wants: WaitReason, signal?: AbortSignal): Promise<void> {
    const { line, wakeup } = place;
    place.wakeup = undefined;
    if (wants === 'jobs') this.#blockedOnCapacity.delete(line);
    else this.#blockedOnCapacity.add(line);
    if (wakeup?.for === 'jobs' && wants !== 'room') {
      this.#callForJobs(wakeup, 1, { after: place, except: wants === 'barred' ? undefined : line });
    }
    if (this.#stopped || signal?.aborted) return Promise.resolve();
    if (line.pendingWakeups > 0) {
      line.pendingWakeups--;
      place.wakeup = line.pendingWakeup;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', wake);
        place.wake = undefined;
        line.waiting.splice(line.waiting.indexOf(place), 1);
        this.#length--;
        this.#noteAsking(line);
        this.#rest();
        resolve();
      };
      const timer = setTimeout(wake, ms);
      signal?.addEventListener('abort', wake, { once: true });
      place.wake = wake;
      // Most are new and go to the end.
      const before = line.waiting.findLastIndex(({ number }) => number < place.number);
      line.waiting.splice(before + 1, 0, place);
      this.#length++;
      this.#noteAsking(line);
      this.#sweep ??= setInterval(() => void this.#sweepOnce(), sweepMs);
    });
  }

  /** Something has come that may concern those who wait. */
  wakeFor({ jobs, unitsFreed: count }: WorkAvailable): void {
    for (const [stream, jobCount] of jobs)
      this.#callForJobs({ for: 'jobs', stream, mayBeMore: false }, jobCount);
    if (count === 0) return;
    for (const line of new Set([...this.#blockedOnCapacity, ...this.#asking]))
      this.#wakeGroup(line, count, room);
  }

  /** Something may have come of which no message told. */
  recheck(): void {
    if (this.#groups.size === 0) return;
    // One who is about it may have looked too early, and then does so again.
    this.#rechecks = true;
    void this.#sweepOnce();
  }

  stop(): void {
    this.#stopped = true;
    for (const line of [...this.#groups.values()]) wakeFirst(line, Number.POSITIVE_INFINITY, room);
  }

  #open(kind: RequestClass): WaiterGroup {
    const line: WaiterGroup = { kind, waiting: [], capacity: 0, pendingWakeups: 0, pendingWakeup: room };
    this.#groups.set(kind.name, line);
    for (const stream of kind.streams) {
      const lines = this.#byStream.get(stream) ?? new Set();
      this.#byStream.set(stream, lines.add(line));
    }
    return line;
  }

  #close(line: WaiterGroup): void {
    this.#groups.delete(line.kind.name);
    this.#blockedOnCapacity.delete(line);
    for (const stream of line.kind.streams) {
      const lines = this.#byStream.get(stream);
      lines?.delete(line);
      if (lines?.size === 0) this.#byStream.delete(stream);
    }
  }

  /** Calls the first who wait for a stream, of those after one who could do nothing with the call. */
  #callForJobs(call: JobsCall, count: number, { after, except }: PassedOn = {}): void {
    const lines = [...(this.#byStream.get(call.stream) ?? [])].filter((line) => line !== except);
    const first = firstWaiting(lines, count, after?.number ?? 0);
    for (const place of first) letGo(place, call);
    const left = count - first.length;
    if (left === 0) return;
    for (const line of lines) {
      const asking = askingIn(line) - first.filter((place) => place.line === line).length;
      this.#keepWakeup(line, Math.min(line.pendingWakeups + left, asking), call);
    }
  }

  #wakeGroup(line: WaiterGroup, count: number, call: Wakeup): void {
    const woken = wakeFirst(line, count, call);
    this.#keepWakeup(line, Math.min(line.pendingWakeups + count - woken, askingIn(line) - woken), call);
  }

  #keepWakeup(line: WaiterGroup, missed: number, call: Wakeup): void {
    // Where both were missed, whoever asks for room, or for as much as there is, finds the jobs as well.
    const { pendingWakeup } = line;
    const isKept = line.pendingWakeups > 0 && (pendingWakeup.for === 'room' || pendingWakeup.mayBeMore);
    if (missed > line.pendingWakeups && !isKept) line.pendingWakeup = call;
    line.pendingWakeups = missed;
  }

  #noteAsking(line: WaiterGroup): void {
    if (askingIn(line) > 0) this.#asking.add(line);
    else this.#asking.delete(line);
  }

  async #sweepOnce(): Promise<void> {
    if (this.#sweeping) return;
    this.#sweeping = true;
    try {
      do {
        this.#rechecks = false;
        const waiting = [...this.#groups.values()].filter(({ waiting }) => waiting.length > 0);
        const kinds = waiting.map(({ kind }) => kind as K);
        for (const stream of await this.#findReady(kinds))
          this.#callForJobs({ for: 'jobs', stream, mayBeMore: true }, 1);
      } while (this.#rechecks);
    } catch {
      // The database is away. Who waits would hear of that from asking, and it will be asked again.
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

/** Who passes a call on, and whose kind could do nothing with it either. */
interface PassedOn {
  after?: Waiter;
  except?: WaiterGroup | undefined;
}

const room: Wakeup = { for: 'room' };

const askingIn = ({ capacity, waiting }: WaiterGroup): number => capacity - waiting.length;

/** The first who wait in any of the lines and came after a place, as many as are wanted. */
function firstWaiting(lines: readonly WaiterGroup[], count: number, after: number): Waiter[] {
  const first: Waiter[] = [];
  for (const { waiting } of lines) {
    let taken = 0;
    for (const place of waiting) {
      // Nobody further down this line came before the last of those who are called already.
      if (taken === count || (first.length >= count && place.number > (first.at(-1)?.number ?? 0))) break;
      if (place.number <= after) continue;
      taken++;
      const at = first.findLastIndex(({ number }) => number < place.number);
      first.splice(at + 1, 0, place);
      if (first.length > count) first.pop();
    }
  }
  return first;
}

function wakeFirst({ waiting }: WaiterGroup, count: number, call: Wakeup): number {
  const first = waiting.slice(0, count);
  for (const place of first) letGo(place, call);
  return first.length;
}

function letGo(place: Waiter, call: Wakeup): void {
  place.wakeup = call;
  place.wake?.();
}

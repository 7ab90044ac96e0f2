/**
 * The workers that this server has heard of lately: from their calls for work, their heartbeats and their streams.
 *
 * Promises: to record a call, a frame or a stream costs a look into a map and a few assignments, however many workers there
 * are. Memory is bounded: `limits.workersListed` workers with a stream and as many others, each with a few asks whose names
 * are cut. A worker beyond the bound is served like any other and is not known.
 *
 * A worker is forgotten when its last stream closes and it makes no calls for work, or when it has neither an open stream
 * nor a waiting call and was not heard for `workerGoneMs`.
 */
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { storedRequest, type WorkerRequest, workerGoneMs } from '../../domain/workers/worker.ts';

/** For how long an ask is kept of a worker that is heard of: while it runs a job it may not ask. */
const askKeptMs = 10 * 60_000;

export type StreamKind = 'WORK_STREAM' | 'HEARTBEAT_STREAM';

type KeptFilter = ClaimFilter & { isCut?: boolean };

/** What a worker asked for in calls. */
interface UnaryRequest {
  kind: string;
  filter: KeptFilter;
  waiting: number;
  calledAt: number;
}

/** A worker. Times are those of the clock of `KnownWorkers`. */
export interface KnownWorker {
  readonly workerId: string;
  peer: string;
  readonly since: number;
  heardAt: number;
  readonly streams: Set<WorkerStream>;
  /** Calls that wait for work. */
  waiting: number;
  asks: UnaryRequest[];
  /** It asked for more kinds of jobs than are kept. */
  asksCut: boolean;
  /** When its row was last written, and whether there may be one: both are kept by the directory. */
  writtenAt: number;
  mayHaveRow: boolean;
}

/** A call for work. */
export interface Asking {
  workerId: string;
  peer: string;
  filter: ClaimFilter;
  /** The filter as one text. */
  kind: string;
  mayWait: boolean;
}

/** What a stream asks for, read when its row is written: also what it has no credit for at the moment. */
export type AsksOfStream = () => Iterable<{ filter: ClaimFilter; credit: number }>;

/** An open stream. Its session says with each frame who speaks. */
export class WorkerStream {
  readonly kind: StreamKind;
  readonly asks: AsksOfStream;
  readonly #workers: KnownWorkers;
  readonly #peer: string;
  #known: KnownWorker | undefined;
  #closed = false;

  constructor(workers: KnownWorkers, kind: StreamKind, peer: string, asks: AsksOfStream) {
    this.#workers = workers;
    this.kind = kind;
    this.#peer = peer;
    this.asks = asks;
  }

  heard(workerId: string): void {
    if (this.#known?.workerId === workerId) {
      this.#known.heardAt = this.#workers.nowMs();
      return;
    }
    if (this.#closed) return;
    if (this.#known) this.#workers.detach(this, this.#known);
    this.#known = this.#workers.attach(this, workerId, this.#peer);
  }

  close(): void {
    this.#closed = true;
    const known = this.#known;
    this.#known = undefined;
    if (!known) return;
    this.#workers.detach(this, known);
    this.#workers.dropIfSilent(known);
  }
}

export class KnownWorkers {
  readonly #known = new Map<string, KnownWorker>();
  /** Of those, how many have a stream. */
  #streaming = 0;
  /** Written rows of workers that are not known any more. */
  readonly #gone = new Set<string>();
  /** A clock that only rises. */
  readonly nowMs: () => number;
  /** Called when a worker has come or gone. */
  onNews: () => void = () => {};

  constructor(nowMs = () => performance.now()) {
    this.nowMs = nowMs;
  }

  get size(): number {
    return this.#known.size;
  }

  /** A call in which a worker asks for nothing. */
  heard(workerId: string, peer: string): void {
    const known = this.#find(workerId, peer);
    if (!known) return;
    known.heardAt = this.nowMs();
    known.peer = peer;
  }

  /** A call for work. What is returned is to be called when it is answered; nothing for a call that does not wait. */
  asks({ workerId, peer, kind, filter, mayWait }: Asking): (() => void) | undefined {
    const known = this.#find(workerId, peer);
    if (!known) return undefined;
    known.heardAt = this.nowMs();
    known.peer = peer;
    const ask = kind.length > limits.workerAskChars ? longAsk(known, filter) : askOf(known, kind, filter);
    if (!mayWait) return undefined;
    known.waiting++;
    if (ask) ask.waiting++;
    return () => {
      known.waiting--;
      known.heardAt = this.nowMs();
      if (ask) ask.waiting--;
    };
  }

  /** A stream that was opened. Its worker is known from the first frame that says who speaks. */
  open(kind: StreamKind, peer: string, asks: AsksOfStream): WorkerStream {
    return new WorkerStream(this, kind, peer, asks);
  }

  /** For `WorkerStream`. */
  attach(stream: WorkerStream, workerId: string, peer: string): KnownWorker | undefined {
    const known = this.#known.get(workerId);
    const isFirst = (known?.streams.size ?? 0) === 0;
    if (isFirst && this.#streaming >= limits.workersListed) return undefined;
    const worker = known ?? this.#add(workerId, peer);
    worker.streams.add(stream);
    worker.peer = peer;
    worker.heardAt = this.nowMs();
    if (isFirst) this.#streaming++;
    return worker;
  }

  /** For `WorkerStream`. */
  detach(stream: WorkerStream, known: KnownWorker): void {
    if (known.streams.delete(stream) && known.streams.size === 0) this.#streaming--;
  }

  /** For `WorkerStream`. */
  dropIfSilent(known: KnownWorker): void {
    if (known.streams.size > 0 || known.asks.length > 0) return;
    this.#drop(known);
    this.onNews();
  }

  /** All that are known, without those that were not heard for too long. */
  *fresh(now = this.nowMs()): Generator<KnownWorker> {
    for (const known of this.#known.values()) {
      if (isOpen(known) || now - known.heardAt < workerGoneMs) yield known;
      else this.#drop(known);
    }
  }

  /** The written rows to be removed; they are, once `removed` is told so. */
  get gone(): string[] {
    return [...this.#gone];
  }

  removed(workerIds: readonly string[]): void {
    for (const workerId of workerIds) this.#gone.delete(workerId);
  }

  clear(): void {
    this.#known.clear();
    this.#gone.clear();
    this.#streaming = 0;
  }

  #find(workerId: string, peer: string): KnownWorker | undefined {
    const known = this.#known.get(workerId);
    if (known) return known;
    return this.#known.size - this.#streaming < limits.workersListed ? this.#add(workerId, peer) : undefined;
  }

  #add(workerId: string, peer: string): KnownWorker {
    const now = this.nowMs();
    const known: KnownWorker = {
      workerId,
      peer,
      since: now,
      heardAt: now,
      streams: new Set(),
      waiting: 0,
      asks: [],
      asksCut: false,
      writtenAt: Number.NEGATIVE_INFINITY,
      mayHaveRow: false,
    };
    this.#known.set(workerId, known);
    this.#gone.delete(workerId);
    this.onNews();
    return known;
  }

  #drop(known: KnownWorker): void {
    if (this.#known.get(known.workerId) !== known) return;
    this.#known.delete(known.workerId);
    if (known.mayHaveRow) this.#gone.add(known.workerId);
  }
}

export const isOpen = ({ streams, waiting }: KnownWorker): boolean => streams.size > 0 || waiting > 0;

/** The ask of this kind, which takes the place of the oldest where there are too many; none where all of them wait. */
function askOf(known: KnownWorker, kind: string, filter: KeptFilter): UnaryRequest | undefined {
  const calledAt = known.heardAt;
  const same = known.asks.find((ask) => ask.kind === kind);
  if (same) {
    same.calledAt = calledAt;
    return same;
  }
  const ask: UnaryRequest = { kind, filter, waiting: 0, calledAt };
  if (known.asks.length >= limits.workerCalledAsks) {
    known.asksCut = true;
    const oldest = known.asks.findIndex(({ waiting }) => waiting === 0);
    if (oldest < 0) return undefined;
    known.asks.splice(oldest, 1);
  }
  known.asks.push(ask);
  return ask;
}

/** A filter with many names is kept cut, so that many workers with such filters take a bounded memory. */
function longAsk(known: KnownWorker, filter: ClaimFilter): UnaryRequest | undefined {
  const kept = storedRequest({ ...namesOf(filter), jobs: 0 });
  return askOf(known, JSON.stringify(kept), kept);
}

/** What a worker asks for on its streams and in calls, the kinds first of which it would take jobs now. */
export function asksOf(known: KnownWorker, now: number): { asks: WorkerRequest[]; asksCut: boolean } {
  known.asks = known.asks.filter(({ waiting, calledAt }) => waiting > 0 || now - calledAt < askKeptMs);
  const all: { filter: KeptFilter; jobs: number }[] = [];
  for (const stream of known.streams)
    for (const { filter, credit } of stream.asks()) all.push({ filter, jobs: credit });
  for (const { filter, waiting } of known.asks) all.push({ filter, jobs: waiting });
  all.sort((a, b) => b.jobs - a.jobs);
  const asks = all
    .slice(0, limits.workerAsks)
    .map(({ filter, jobs }) => storedRequest({ ...namesOf(filter), jobs }));
  const asksCut = known.asksCut || all.length > asks.length;
  known.asksCut = false;
  return { asks, asksCut };
}

const namesOf = ({
  streams,
  addonId,
  jobTypes,
  maxCostUnits,
  available,
  refused,
  isCut = false,
}: KeptFilter) => ({
  streams,
  addonId,
  jobTypes,
  maxCostUnits,
  available,
  refused,
  isCut,
});

/**
 * The workers that called this server recently: with requests for work, heartbeats or streams.
 *
 * Guarantees:
 * - Recording a call, a frame or a stream costs a map lookup and a few assignments, whatever the number of
 *   workers.
 * - Memory is bounded: `limits.workersListed` workers with a stream and as many others, each with a few
 *   requests whose names are cut. A worker beyond the bound is served like any other, but is not listed.
 *
 * Lifecycle: a worker is forgotten when its last stream closes and it has no requests for work. It is also
 * forgotten if it has neither an open stream nor a waiting call, and has not called for `workerGoneMs`.
 */
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { storedRequest, type WorkerRequest, workerGoneMs } from '../../domain/workers/worker.ts';

/** How long a request of an active worker is kept: while the worker runs a job it may not ask. */
const askKeptMs = 10 * 60_000;

export type StreamKind = 'WORK_STREAM' | 'HEARTBEAT_STREAM';

type KeptFilter = ClaimFilter & { isCut?: boolean };

/** A request class that a worker asked for in unary calls. */
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
  /** The worker asked for more request classes than are kept. */
  asksCut: boolean;
  /** When its row was last written, and whether there may be one. The directory maintains both. */
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

/** The requests of a stream, read when its row is written, including those without credit at the moment. */
export type AsksOfStream = () => Iterable<{ filter: ClaimFilter; credit: number }>;

/** An open stream. Its session names the worker with each frame. */
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
  /** How many of them have a stream. */
  #streaming = 0;
  /** Written rows of workers that are no longer known. */
  readonly #gone = new Set<string>();
  /** A monotonic clock. */
  readonly nowMs: () => number;
  /** Called when a worker was added or removed. */
  onNews: () => void = () => {};

  constructor(nowMs = () => performance.now()) {
    this.nowMs = nowMs;
  }

  get size(): number {
    return this.#known.size;
  }

  /** A call that does not request work. */
  heard(workerId: string, peer: string): void {
    const known = this.#find(workerId, peer);
    if (!known) return;
    known.heardAt = this.nowMs();
    known.peer = peer;
  }

  /**
   * A call for work. Returns a function to call when it is answered; undefined for a call that does not wait.
   */
  asks({ workerId, peer, kind, filter, mayWait }: Asking): (() => void) | undefined {
    const known = this.#find(workerId, peer);
    if (!known) return undefined;
    known.heardAt = this.nowMs();
    if (known.peer !== peer) known.peer = peer;
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

  /** A stream was opened. Its worker is known from the first frame that names it. */
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

  /** All known workers; removes those that have not called for too long. */
  *fresh(now = this.nowMs()): Generator<KnownWorker> {
    for (const known of this.#known.values()) {
      if (isOpen(known) || now - known.heardAt < workerGoneMs) yield known;
      else this.#drop(known);
    }
  }

  /** The written rows to remove, until `removed` reports them as deleted. */
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

/**
 * The request of this class, which replaces the oldest if there are too many; undefined if all of them are
 * waiting.
 */
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

/**
 * A filter with many names is stored truncated, so that many workers with such filters take a bounded memory.
 */
function longAsk(known: KnownWorker, filter: ClaimFilter): UnaryRequest | undefined {
  const kept = storedRequest({ ...namesOf(filter), jobs: 0 });
  return askOf(known, JSON.stringify(kept), kept);
}

/** What a worker asks for on its gRPC streams and in calls; classes that it would take now come first. */
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

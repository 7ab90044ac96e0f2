/**
 * Gathers calls of one kind into batches without ever making one wait for company.
 *
 * Promises: when nothing is in flight, the calls that arrive in one turn of the event loop leave together at its end;
 * a lone call leaves alone. A call that arrives later waits for a batch to land, and then leaves with everything that
 * has gathered, up to `sizeMax` calls and `weightMax` in weight, in the order of arrival. There is no timer: an idle
 * system adds no delay, and a busy one forms batches as large as its load. Where `flightsMax` allows more than one
 * batch at a time, a further one leaves only with `companionWeight` aboard: several small statements would cost the
 * database more than one large one. Every call gets its own answer or its own error; an error of `flush` itself goes
 * to every call of that batch and to no other.
 *
 * A call whose signal fires while it waits is dropped and never reaches `flush`. Once in flight it can no longer be
 * taken out; only when the signals of all calls of a batch have fired does the batch's own signal fire, so that the
 * database stops working for nobody. More than `waitingMax` waiting calls are refused as `overloaded`.
 *
 * Stops with `close`: later calls are refused, and the promise settles when the last batch has landed.
 */
import { DomainError } from '../../domain/errors.ts';
import type { BatchMeter } from '../../telemetry/batch-metrics.ts';
import type { Span } from '../../telemetry/tracing.ts';

export interface BatcherOptions<In, Out> {
  /** Does the work of one batch. Answers in the order of the calls; an Error in place of an answer fails that call. */
  flush(calls: readonly In[], signal: AbortSignal | undefined): Promise<readonly (Out | Error)[]>;
  /** Calls in one batch at the most. */
  sizeMax: number;
  /** Batches under way at the same time; 1 where left out. More only where their order does not matter. */
  concurrencyMax?: number;
  /** What a batch has to weigh to leave beside one that is in flight; `weightMax` where left out. */
  minWeightWhenBusy?: number;
  /** What a call weighs; 1 where left out. */
  weigh?(call: In): number;
  /** Weight of one batch at the most; a heavier call still leaves, alone. `sizeMax` where left out. */
  weightMax?: number;
  /** Calls that may wait. */
  waitingMax: number;
  /** Called whenever nothing waits and nothing is in flight any more. */
  onIdle?(): void;
  /** Counts its batches; several batchers of one kind may share it. */
  meter?: BatchMeter | undefined;
}

interface PendingCall<In, Out> {
  call: In;
  weight: number;
  signal: AbortSignal | undefined;
  onAbort: (() => void) | undefined;
  resolve(answer: Out): void;
  reject(error: unknown): void;
  /** Its caller has gone; it is skipped when its turn comes. */
  isCanceled: boolean;
  /** The batch it is in flight with. */
  batch: RunningBatch | undefined;
  /** What it is part of, where it is traced. */
  span: Span | undefined;
}

/** A batch under way, and how many of its callers still wait for it. */
interface RunningBatch {
  present: number;
  controller: AbortController | undefined;
}

export class Batcher<In, Out> {
  readonly #options: Required<Omit<BatcherOptions<In, Out>, 'meter'>>;
  readonly #meter: BatchMeter | undefined;
  #waiting: PendingCall<In, Out>[] = [];
  #waitingWeight = 0;
  #running = 0;
  #scheduled = false;
  #closed = false;
  #drained: (() => void)[] = [];

  constructor({ meter, ...options }: BatcherOptions<In, Out>) {
    this.#meter = meter;
    const weightMax = options.weightMax ?? options.sizeMax;
    this.#options = {
      concurrencyMax: 1,
      weigh: () => 1,
      minWeightWhenBusy: weightMax,
      onIdle: () => {},
      ...options,
      weightMax,
    };
  }

  /** Calls that wait for their batch. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get idle(): boolean {
    return this.#running === 0 && this.#waiting.length === 0;
  }

  run(call: In, signal?: AbortSignal): Promise<Out> {
    if (this.#closed) return Promise.reject(new DomainError('unavailable', 'the server is shutting down'));
    if (signal?.aborted) return Promise.reject(abandoned(signal));
    const meter = this.#meter;
    if (this.#waiting.length >= this.#options.waitingMax) {
      meter?.refused.add();
      return Promise.reject(new DomainError('overloaded', 'too many calls are waiting; try again later'));
    }
    return new Promise<Out>((resolve, reject) => {
      const waiting: PendingCall<In, Out> = {
        call,
        signal,
        onAbort: undefined,
        resolve,
        reject,
        weight: this.#options.weigh(call),
        isCanceled: false,
        batch: undefined,
        span: meter?.caller(),
      };
      if (signal) {
        waiting.onAbort = () => leave(waiting, signal);
        signal.addEventListener('abort', waiting.onAbort);
      }
      this.#waiting.push(waiting);
      this.#waitingWeight += waiting.weight;
      if (meter) meter.waiting++;
      this.#schedule();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    while (!this.idle) await new Promise<void>((resolve) => this.#drained.push(resolve));
  }

  /** Waits for the end of this turn of the event loop, because what arrives together can leave together. */
  #schedule(): void {
    if (this.#scheduled || !this.#mayStart()) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#startBatches();
    });
  }

  #mayStart(): boolean {
    if (this.#waiting.length === 0) return false;
    if (this.#running === 0) return true;
    return (
      this.#running < this.#options.concurrencyMax && this.#waitingWeight >= this.#options.minWeightWhenBusy
    );
  }

  #startBatches(): void {
    while (this.#mayStart()) {
      const batch = this.#takeBatch();
      if (batch.length === 0) continue;
      this.#running++;
      void this.#run(batch);
    }
    if (!this.idle) return;
    for (const landed of this.#drained.splice(0)) landed();
    this.#options.onIdle();
  }

  /** Takes the next batch off the queue. */
  #takeBatch(): PendingCall<In, Out>[] {
    const { sizeMax, weightMax } = this.#options;
    const batch: PendingCall<In, Out>[] = [];
    let weight = 0;
    let next = 0;
    for (; next < this.#waiting.length && batch.length < sizeMax; next++) {
      const waiting = this.#waiting[next] as PendingCall<In, Out>;
      if (!waiting.isCanceled) {
        if (weight + waiting.weight > weightMax && batch.length > 0) break;
        weight += waiting.weight;
        batch.push(waiting);
      }
      this.#waitingWeight -= waiting.weight;
    }
    this.#waiting = next === this.#waiting.length ? [] : this.#waiting.slice(next);
    if (this.#meter) this.#meter.waiting -= next;
    return batch;
  }

  async #run(batch: readonly PendingCall<In, Out>[]): Promise<void> {
    const flight = membersOf(batch);
    try {
      const answers = await this.#flush(batch, flight.controller?.signal);
      for (let i = 0; i < batch.length; i++) {
        const answer = answers[i] as Out | Error;
        if (answer instanceof Error) batch[i]?.reject(answer);
        else batch[i]?.resolve(answer);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      for (const { signal, onAbort } of batch) if (onAbort) signal?.removeEventListener('abort', onAbort);
      this.#running--;
      this.#startBatches();
    }
  }

  #flush(
    batch: readonly PendingCall<In, Out>[],
    signal: AbortSignal | undefined,
  ): Promise<readonly (Out | Error)[]> {
    const { flush } = this.#options;
    const meter = this.#meter;
    const calls = batch.map(({ call }) => call);
    if (!meter) return flush(calls, signal);
    const weight = batch.reduce((sum, one) => sum + one.weight, 0);
    return meter.run(batch, weight, () => flush(calls, signal));
  }
}

/** A caller has gone: its call is skipped if it still waits, and its batch is stopped if it was the last. */
function leave<In, Out>(waiting: PendingCall<In, Out>, signal: AbortSignal): void {
  waiting.isCanceled = true;
  waiting.reject(abandoned(signal));
  const { batch } = waiting;
  if (batch && --batch.present === 0) batch.controller?.abort(signal.reason);
}

/** Lets a batch take off. It has no signal where a call has none, because that one waits for ever. */
function membersOf<In, Out>(batch: readonly PendingCall<In, Out>[]): RunningBatch {
  const stoppable = batch.every(({ signal }) => signal !== undefined);
  const flight: RunningBatch = {
    present: batch.length,
    controller: stoppable ? new AbortController() : undefined,
  };
  for (const waiting of batch) waiting.batch = flight;
  return flight;
}

/** Why a call was abandoned, from the reason its signal gave. */
export function abandoned(signal: AbortSignal): DomainError {
  const reason: unknown = signal.reason;
  if (reason instanceof DomainError) return reason;
  return new DomainError('canceled', 'the caller has gone', { cause: reason });
}

/**
 * Gathers calls of one kind into batches, without delaying a call for the sake of a batch.
 *
 * Guarantees:
 * - When no batch is running, the calls that arrive in one turn of the event loop form a batch at its end; a
 *   lone call is a batch of its own.
 * - A call that arrives later waits for a batch to end. It then starts with all calls that have gathered, up
 *   to `sizeMax` calls and `weightMax` in weight, in the order of arrival.
 * - There is no timer: an idle system adds no delay, and a busy one forms batches as large as its load.
 * - If `concurrencyMax` allows several batches at a time, a further one starts only with `minWeightWhenBusy`:
 *   several small statements would cost the database more than one large one.
 * - Each call gets its own answer or its own error. An error of `flush` itself goes to each call of that
 *   batch and to no other.
 * - More than `waitingMax` waiting calls are refused as `overloaded`.
 *
 * Lifecycle: a call whose signal fires while it waits is dropped and never reaches `flush`. A call of a
 * running batch cannot be taken out. Only when the signals of all calls of a batch have fired does the
 * batch's own signal fire, so that the database stops work without a caller. After `close` further calls are
 * refused, and its promise settles when the last batch has ended.
 */
import { DomainError } from '../../domain/errors.ts';
import type { BatchMeter } from '../../telemetry/batch-metrics.ts';
import type { Span } from '../../telemetry/tracing.ts';

export interface BatcherOptions<In, Out> {
  /**
   * Does the work of one batch. Returns answers in the order of the calls; an Error in place of an answer
   * fails that call.
   */
  flush(calls: readonly In[], signal: AbortSignal | undefined): Promise<readonly (Out | Error)[]>;
  /** The maximum of calls in one batch. */
  sizeMax: number;
  /** Batches that run at the same time; 1 if omitted. More only if their order does not matter. */
  concurrencyMax?: number;
  /** The minimum weight of a batch that starts while another runs; `weightMax` if omitted. */
  minWeightWhenBusy?: number;
  /** The weight of a call; 1 if omitted. */
  weigh?(call: In): number;
  /** The maximum weight of one batch; a heavier call is a batch of its own. `sizeMax` if omitted. */
  weightMax?: number;
  /** The maximum of waiting calls. */
  waitingMax: number;
  /** Called whenever no call waits and no batch runs any more. */
  onIdle?(): void;
  /** The meter of its batches; several batchers of one kind may share it. */
  meter?: BatchMeter | undefined;
}

interface PendingCall<In, Out> {
  call: In;
  weight: number;
  signal: AbortSignal | undefined;
  onAbort: (() => void) | undefined;
  resolve(answer: Out): void;
  reject(error: unknown): void;
  /** Its caller has cancelled it; a waiting call is skipped. */
  isCanceled: boolean;
  /** The running batch that it belongs to. */
  batch: RunningBatch | undefined;
  /** The span that it is part of, if it is traced. */
  span: Span | undefined;
}

/** A running batch, and the number of its callers that still wait for it. */
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

  /**
   * Waits for the end of this turn of the event loop, because calls that arrive in one turn can share a
   * batch.
   */
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

/** Cancels a call: it is skipped if it still waits. Its batch is aborted if no other caller waits for it. */
function leave<In, Out>(waiting: PendingCall<In, Out>, signal: AbortSignal): void {
  waiting.isCanceled = true;
  waiting.reject(abandoned(signal));
  const { batch } = waiting;
  if (batch && --batch.present === 0) batch.controller?.abort(signal.reason);
}

/**
 * Marks calls as members of a running batch. The batch has no signal if a call has none, because that call
 * cannot be cancelled.
 */
function membersOf<In, Out>(batch: readonly PendingCall<In, Out>[]): RunningBatch {
  const stoppable = batch.every(({ signal }) => signal !== undefined);
  const flight: RunningBatch = {
    present: batch.length,
    controller: stoppable ? new AbortController() : undefined,
  };
  for (const waiting of batch) waiting.batch = flight;
  return flight;
}

/** The error of a cancelled call, from the reason of its signal. */
export function abandoned(signal: AbortSignal): DomainError {
  const reason: unknown = signal.reason;
  if (reason instanceof DomainError) return reason;
  return new DomainError('canceled', 'the caller has gone', { cause: reason });
}

/**
 * Gathers calls of one kind into batches without ever making one wait for company.
 *
 * Promises: a call that arrives while fewer than `flightsMax` batches are in flight leaves at once, alone if it is
 * alone. A call that arrives later waits for a batch to land, and then leaves with everything that has gathered, up
 * to `sizeMax` calls and `weightMax` in weight, in the order of arrival. There is no timer: an idle system adds no
 * delay, and a busy one forms batches as large as its load. Every call gets its own answer or its own error; an
 * error of `flush` itself goes to every call of that batch and to no other.
 *
 * A call whose signal fires while it waits is dropped and never reaches `flush`. Once in flight it can no longer be
 * taken out; only when the signals of all calls of a batch have fired does the batch's own signal fire, so that the
 * database stops working for nobody. More than `waitingMax` waiting calls are refused as `overloaded`.
 *
 * Stops with `close`: later calls are refused, and the promise settles when the last batch has landed.
 */
import { DomainError } from '../domain/errors.ts';

export interface BatcherOptions<In, Out> {
  /** Does the work of one batch. Answers in the order of the calls; an Error in place of an answer fails that call. */
  flush(calls: readonly In[], signal: AbortSignal | undefined): Promise<readonly (Out | Error)[]>;
  /** Calls in one batch at the most. */
  sizeMax: number;
  /** Batches under way at the same time. More than one only where their order does not matter. */
  flightsMax?: number;
  /** What a call weighs; 1 where left out. */
  weigh?(call: In): number;
  /** Weight of one batch at the most; a heavier call still leaves, alone. `sizeMax` where left out. */
  weightMax?: number;
  /** Calls that may wait. */
  waitingMax: number;
}

interface Waiting<In, Out> {
  call: In;
  signal: AbortSignal | undefined;
  onAbort: (() => void) | undefined;
  resolve(answer: Out): void;
  reject(error: unknown): void;
  /** Its caller has gone; it is skipped when its turn comes. */
  gone: boolean;
}

export class Batcher<In, Out> {
  readonly #options: Required<BatcherOptions<In, Out>>;
  #waiting: Waiting<In, Out>[] = [];
  #inFlight = 0;
  #closed = false;
  #landed: (() => void)[] = [];

  constructor(options: BatcherOptions<In, Out>) {
    this.#options = { flightsMax: 1, weigh: () => 1, weightMax: options.sizeMax, ...options };
  }

  /** Calls that wait for their batch. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get idle(): boolean {
    return this.#inFlight === 0 && this.#waiting.length === 0;
  }

  run(call: In, signal?: AbortSignal): Promise<Out> {
    if (this.#closed) return Promise.reject(new DomainError('unavailable', 'the server is shutting down'));
    if (signal?.aborted) return Promise.reject(abandoned(signal));
    if (this.#waiting.length >= this.#options.waitingMax) {
      return Promise.reject(new DomainError('overloaded', 'too many calls are waiting; try again later'));
    }
    return new Promise<Out>((resolve, reject) => {
      const waiting: Waiting<In, Out> = { call, signal, onAbort: undefined, resolve, reject, gone: false };
      if (signal) {
        waiting.onAbort = () => {
          waiting.gone = true;
          reject(abandoned(signal));
        };
        signal.addEventListener('abort', waiting.onAbort, { once: true });
      }
      this.#waiting.push(waiting);
      this.#depart();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    while (!this.idle) await new Promise<void>((resolve) => this.#landed.push(resolve));
  }

  #depart(): void {
    while (this.#inFlight < this.#options.flightsMax && this.#waiting.length > 0) {
      const batch = this.#board();
      if (batch.length === 0) continue;
      this.#inFlight++;
      void this.#fly(batch);
    }
  }

  /** Takes the next batch off the queue. */
  #board(): Waiting<In, Out>[] {
    const { sizeMax, weightMax, weigh } = this.#options;
    const batch: Waiting<In, Out>[] = [];
    let weight = 0;
    let next = 0;
    for (; next < this.#waiting.length && batch.length < sizeMax; next++) {
      const waiting = this.#waiting[next] as Waiting<In, Out>;
      if (waiting.gone) continue;
      weight += weigh(waiting.call);
      if (weight > weightMax && batch.length > 0) break;
      batch.push(waiting);
    }
    this.#waiting = next === this.#waiting.length ? [] : this.#waiting.slice(next);
    return batch;
  }

  async #fly(batch: readonly Waiting<In, Out>[]): Promise<void> {
    const shared = sharedSignal(batch);
    try {
      const answers = await this.#options.flush(
        batch.map(({ call }) => call),
        shared.signal,
      );
      for (let i = 0; i < batch.length; i++) {
        const answer = answers[i] as Out | Error;
        if (answer instanceof Error) batch[i]?.reject(answer);
        else batch[i]?.resolve(answer);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      shared.release();
      for (const { signal, onAbort } of batch) if (onAbort) signal?.removeEventListener('abort', onAbort);
      this.#inFlight--;
      this.#depart();
      for (const landed of this.#landed.splice(0)) landed();
    }
  }
}

/** Why a call was abandoned, from the reason its signal gave. */
export function abandoned(signal: AbortSignal): DomainError {
  const reason: unknown = signal.reason;
  if (reason instanceof DomainError) return reason;
  return new DomainError('canceled', 'the caller has gone', { cause: reason });
}

/** A signal that fires once those of all calls have; none where a call has no signal and so waits for ever. */
function sharedSignal(batch: readonly { signal: AbortSignal | undefined }[]): {
  signal: AbortSignal | undefined;
  release(): void;
} {
  const signals: AbortSignal[] = [];
  for (const { signal } of batch) {
    if (!signal) return { signal: undefined, release: () => {} };
    signals.push(signal);
  }
  const controller = new AbortController();
  let present = signals.length;
  const leave = () => {
    if (--present === 0) controller.abort(signals[0]?.reason);
  };
  for (const signal of signals) signal.addEventListener('abort', leave, { once: true });
  return {
    signal: controller.signal,
    release: () => {
      for (const signal of signals) signal.removeEventListener('abort', leave);
    },
  };
}

/**
 * Gathers items into batches, of which none waits for a row that another transaction has locked.
 *
 * Guarantees:
 * - The first attempt of an item is part of a batch that does not wait for locks. The batch answers
 *   `rowLocked` for an item whose row is locked, so that it does not delay the answers of the other items.
 * - Such an item is tried again in a small batch that waits for locks, until it has an answer. A row that
 *   stays locked therefore delays few items.
 * - Each item gets one answer or one error. An error of `flush` goes to the items of that batch only.
 *
 * Lifecycle: as in `Batcher`, for both kinds of batches. After `close` further items are refused, and its
 * promise settles when all accepted items have been answered, those between two attempts included.
 */
import { DomainError } from '../../domain/errors.ts';
import { splitByLength } from '../split-by-length.ts';
import { Batcher, type BatcherOptions } from './batcher.ts';
import { WaitGroup } from './wait-group.ts';

/**
 * The answer of a batch on an item that must be tried again: another transaction has locked its row, or the
 * row has changed during the batch.
 */
export const rowLocked = Symbol('row locked');
export type RowLocked = typeof rowLocked;

export type Attempts<Out> = readonly (Out | RowLocked)[];

/** An answer that is no error. */
type Success<Out> = Exclude<Out, Error>;

/** How many items one waiting batch takes, and how many such batches run at a time. */
const lockedRowBatches = { sizeMax: 4, concurrencyMax: 4, minWeightWhenBusy: 1 } as const;

export interface LockAwareBatcherOptions<In, Out> {
  /**
   * Does the work of one batch, and returns an answer for each item, in the order of the items. An Error in
   * place of an answer fails that item. With `wait` it waits for rows that other transactions have locked.
   */
  flush(items: readonly In[], wait: boolean, signal: AbortSignal | undefined): Promise<Attempts<Out>>;
  /** The first attempts; a function if another batcher makes them. */
  first: FirstBatches | ((items: readonly In[], signal: AbortSignal | undefined) => Promise<Attempts<Out>>);
  /** The meter of the batches that wait. */
  lockedMeter: BatcherOptions<In, Out>['meter'];
  /** The weight of an item; 1 if omitted. */
  weigh?(item: In): number;
  /** The maximum of calls that wait for one kind of batch. */
  waitingMax: number;
}

/** The batches of the first attempts. Their limits count the items of a call, each by its weight. */
export type FirstBatches = Pick<
  BatcherOptions<unknown, unknown>,
  'meter' | 'sizeMax' | 'weightMax' | 'concurrencyMax' | 'minWeightWhenBusy'
>;

/** The attempts that a caller makes one by one. */
export interface SingleAttempts<In, Out> {
  /** One attempt that does not wait for locks. */
  attempt(item: In, signal: AbortSignal | undefined): Promise<Success<Out> | RowLocked>;
  /** One attempt that waits for locks. */
  attemptWaiting(item: In, signal: AbortSignal | undefined): Promise<Success<Out> | RowLocked>;
}

export class LockAwareBatcher<In, Out> {
  readonly #first: (items: readonly In[], signal: AbortSignal | undefined) => Promise<Attempts<Out>>;
  readonly #batcher: Batcher<readonly In[], Attempts<Out>> | undefined;
  readonly #lockedRowBatcher: Batcher<In, Out | RowLocked>;
  /** Calls that are not answered yet. */
  readonly #open = new WaitGroup();
  #closed = false;
  readonly #attempts: SingleAttempts<In, Out> = {
    attempt: async (item, signal) => {
      const [answer] = await this.#first([item], signal);
      if (answer instanceof Error) throw answer;
      return answer as Success<Out> | RowLocked;
    },
    attemptWaiting: (item, signal) =>
      this.#lockedRowBatcher.run(item, signal) as Promise<Success<Out> | RowLocked>,
  };

  constructor({ flush, first, lockedMeter, weigh, waitingMax }: LockAwareBatcherOptions<In, Out>) {
    let weightMax: number | undefined;
    if (typeof first === 'function') this.#first = first;
    else {
      ({ weightMax } = first);
      const batcher = new Batcher<readonly In[], Attempts<Out>>({
        ...first,
        waitingMax,
        weigh: weigh ? (items) => items.reduce((sum, item) => sum + weigh(item), 0) : ({ length }) => length,
        flush: (calls, signal) => flushLists(calls, (items) => flush(items, false, signal)),
      });
      this.#batcher = batcher;
      this.#first = (items, signal) => batcher.run(items, signal);
    }
    this.#lockedRowBatcher = new Batcher<In, Out | RowLocked>({
      ...lockedRowBatches,
      ...(weigh && { weigh }),
      ...(weightMax !== undefined && { weightMax }),
      meter: lockedMeter,
      waitingMax,
      flush: (items, signal) => flush(items, true, signal),
    });
  }

  /** The answer to one item, or rejects with its error. */
  run(item: In, signal?: AbortSignal): Promise<Success<Out>> {
    return this.runSteps(async ({ attempt }) => {
      const answer = await attempt(item, signal);
      return answer === rowLocked ? this.#retry(item, signal) : answer;
    });
  }

  /**
   * An answer for each item, in the order given. An item whose row is locked has the promise of its answer in
   * place of one. A promise that the caller does not await may reject.
   */
  async runEach(
    items: readonly In[],
    signal?: AbortSignal,
  ): Promise<readonly (Out | Promise<Success<Out>>)[]> {
    if (items.length === 0) return [];
    return this.runSteps(async () => {
      const answers = await this.#first(items, signal);
      if (!answers.includes(rowLocked)) return answers as readonly Out[];
      return answers.map((answer, i) => {
        if (answer !== rowLocked) return answer;
        const late = this.#track(() => this.#retry(items[i] as In, signal));
        // A caller that has disconnected meanwhile does not await it.
        late.catch(() => {});
        return late;
      });
    });
  }

  /** For callers that act between the attempts of an item. `close` waits for all of `steps`. */
  runSteps<T>(steps: (attempts: SingleAttempts<In, Out>) => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new DomainError('unavailable', 'the server is shutting down'));
    return this.#track(() => steps(this.#attempts));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#open.wait();
    await this.#batcher?.close();
    await this.#lockedRowBatcher.close();
  }

  async #track<T>(work: () => Promise<T>): Promise<T> {
    this.#open.add();
    try {
      return await work();
    } finally {
      this.#open.done();
    }
  }

  async #retry(item: In, signal: AbortSignal | undefined): Promise<Success<Out>> {
    for (;;) {
      const answer = await this.#attempts.attemptWaiting(item, signal);
      if (answer !== rowLocked) return answer;
    }
  }
}

/** Flushes the items of several calls together, and splits the answers by call. */
async function flushLists<In, Out>(
  calls: readonly (readonly In[])[],
  flush: (items: readonly In[]) => Promise<readonly Out[]>,
): Promise<(readonly Out[])[]> {
  if (calls.length === 1) return [await flush(calls[0] as readonly In[])];
  const answers = await flush(calls.flat());
  return splitByLength(
    answers,
    calls.map(({ length }) => length),
  );
}

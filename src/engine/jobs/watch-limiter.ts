/**
 * Limits the cost of watch streams: how many are open, and how many read the database at a time.
 *
 * Guarantees:
 * - At most `openMax` are open; a further one is refused with `overloaded`.
 * - At most `readsMax` of them read at the same time, in the order of their calls. Thousands of watchers that
 *   are woken together leave connections of the pool to all other calls.
 * - A watcher whose signal fires leaves the queue.
 */
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';

const readsMax = 3;

export class WatchLimiter {
  readonly #openMax: number;
  #open = 0;
  #reading = 0;
  readonly #waiting = new Set<() => void>();

  constructor(openMax: number = limits.watchStreams) {
    this.#openMax = openMax;
  }

  get open(): number {
    return this.#open;
  }

  /** Counts a stream until the function that it returns is called. */
  enter(): () => void {
    if (this.#open >= this.#openMax)
      throw new DomainError(
        'overloaded',
        `this server follows ${this.#openMax} streams already; try another`,
      );
    this.#open += 1;
    let isOpen = true;
    return () => {
      if (isOpen) this.#open -= 1;
      isOpen = false;
    };
  }

  async read<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    if (this.#reading >= readsMax) await this.#turn(signal);
    else this.#reading += 1;
    try {
      return await work();
    } finally {
      this.#passOn();
    }
  }

  /** The previous reader passes its slot on directly, so that no newcomer takes it in between. */
  #turn(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(begin);
        reject(signal.reason);
      };
      const begin = () => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      this.#waiting.add(begin);
      signal.addEventListener('abort', leave, { once: true });
    });
  }

  #passOn(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#reading -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}

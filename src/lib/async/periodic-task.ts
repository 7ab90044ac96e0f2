/**
 * One round of a service after another, and its sleep between them.
 *
 * Promises: never two rounds at the same time. The next one begins after the pause that the last one has asked for, or earlier
 * where somebody wants that, also while a round is under way, which may have looked too early to see why. A round that
 * fails is told of, and followed by another after `failedMs`; one that fails because it is stopped is not. `stop` settles
 * when nothing runs any more, and nothing begins after it but by another `start`.
 */
export interface PeriodicTaskOptions {
  /** Does a round, and says for how many milliseconds there will be nothing to do. */
  run(): Promise<number>;
  onFailed(error: unknown): void;
  failedMs: number;
}

/** A timer can be set no further. */
const longestMs = 2 ** 31 - 1;

export class PeriodicTask {
  readonly #options: PeriodicTaskOptions;
  #timer: NodeJS.Timeout | undefined;
  /** When the next round begins, by `performance.now()`. */
  #nextAt = Number.POSITIVE_INFINITY;
  #round: Promise<void> | undefined;
  #running = false;

  constructor(options: PeriodicTaskOptions) {
    this.#options = options;
  }

  start(firstMs = 0): void {
    if (this.#running) return;
    this.#running = true;
    this.wakeIn(firstMs);
  }

  async stop(): Promise<void> {
    this.#running = false;
    clearTimeout(this.#timer);
    this.#nextAt = Number.POSITIVE_INFINITY;
    await this.#round;
  }

  /** The next round is to begin so many milliseconds from now, if not earlier. */
  wakeIn(ms: number): void {
    const at = performance.now() + ms;
    if (!this.#running || at >= this.#nextAt) return;
    this.#nextAt = at;
    if (this.#round === undefined) this.#sleep();
  }

  #sleep(): void {
    clearTimeout(this.#timer);
    const ms = Math.min(Math.max(this.#nextAt - performance.now(), 1), longestMs);
    this.#timer = setTimeout(() => {
      this.#nextAt = Number.POSITIVE_INFINITY;
      this.#round = this.#run();
    }, ms);
  }

  async #run(): Promise<void> {
    const { run, onFailed, failedMs } = this.#options;
    let pauseMs = failedMs;
    try {
      pauseMs = await run();
    } catch (error) {
      if (this.#running) onFailed(error);
    }
    this.#round = undefined;
    if (!this.#running) return;
    this.#nextAt = Math.min(this.#nextAt, performance.now() + pauseMs);
    this.#sleep();
  }
}

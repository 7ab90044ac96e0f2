/**
 * Runs the rounds of a service one after another, with a pause between them.
 *
 * Guarantees: two rounds never overlap. The next round begins after the pause that the last one returned, or
 * earlier after `wakeIn`. `wakeIn` also counts during a round, which may have run too early to see the
 * reason.
 *
 * Lifecycle: `stop` settles when no round runs any more. Only another `start` begins a new one.
 *
 * Failure modes: a failed round is reported with `onFailed`, and the next follows after `failedMs`. A round
 * that fails because of `stop` is not reported.
 */
export interface PeriodicTaskOptions {
  /** Does a round, and returns the milliseconds until the next. */
  run(): Promise<number>;
  onFailed(error: unknown): void;
  failedMs: number;
}

/** The longest time of a timer in Node. */
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

  /** Starts the next round in `ms` milliseconds at the latest. */
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

/**
 * From which deadline on there may be rows to look at.
 *
 * A row that is handled leaves its place in the index of deadlines, and where somebody keeps an old snapshot, that place
 * stays: whoever begins at the front of the index wades through all of them, which at 220,000 took 20 to 140 ms a look.
 * So a look begins where the one before has seen that there is nothing earlier.
 *
 * Nobody sets a deadline that is past already, but a transaction may commit a while after it has set one; deadlines of
 * the last `marginMs` are therefore looked at again. What came later still, or was set by hand, or by a clock that went
 * back, is found by a look that begins at the front. There is one as long as such looks are cheap, which they always are
 * but for that snapshot; and otherwise so often that they take `1 / restShare` of the time.
 */
import type { NextDue } from '../../store/sql/jobs/lock.ts';

const marginMs = 1_000;
const restShare = 30;

export class DeadlineCursor {
  readonly #clockMs: () => number;
  #fromMs = Number.NEGATIVE_INFINITY;
  /** When a look begins at the front again. */
  #frontAtMs = Number.NEGATIVE_INFINITY;

  /** `clockMs` only rises. */
  constructor(clockMs = () => performance.now()) {
    this.#clockMs = clockMs;
  }

  /** Where to begin, as of the last look. */
  get fromMs(): number {
    return this.#fromMs;
  }

  /** Looks, and says how long until the first deadline: negative where one is past, null where there is none. */
  async cursorFor(read: (fromMs: number) => Promise<NextDue>): Promise<number | null> {
    const beganMs = this.#clockMs();
    const isFromFront = beganMs >= this.#frontAtMs;
    const { nowMs, firstMs } = await read(isFromFront ? Number.NEGATIVE_INFINITY : this.#fromMs);
    // The database knows microseconds: whatever is lost of them, the first one stays in view.
    this.#fromMs = Math.floor(Math.min(firstMs ?? nowMs, nowMs - marginMs));
    const endedMs = this.#clockMs();
    if (isFromFront) this.#frontAtMs = endedMs + restShare * (endedMs - beganMs);
    return firstMs === null ? null : firstMs - nowMs;
  }
}

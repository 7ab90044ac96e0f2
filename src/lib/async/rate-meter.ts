/**
 * Measures the recent rate of an event per second: an average in which an event `halfLifeMs` ago counts half.
 * It needs no timer: old events fade by calculation.
 */
const halfLifeMs = 3_000;
/** The weight of an event, so that a steady rate of one a second yields one. */
const weightPerS = (Math.LN2 / halfLifeMs) * 1_000;

export class RateMeter {
  #rate = 0;
  #atMs = 0;

  count(amount: number, nowMs = performance.now()): void {
    this.#rate = this.perSecond(nowMs) + amount * weightPerS;
    this.#atMs = nowMs;
  }

  perSecond(nowMs = performance.now()): number {
    return this.#rate * 0.5 ** ((nowMs - this.#atMs) / halfLifeMs);
  }
}

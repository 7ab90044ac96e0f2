/**
 * How often something has happened of late, a second: an average in which what happened `halfLifeMs` ago counts half.
 * It needs no timer, and forgets by itself.
 */
const halfLifeMs = 3_000;
/** An event adds this much, so that a steady rate of one a second comes to one. */
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

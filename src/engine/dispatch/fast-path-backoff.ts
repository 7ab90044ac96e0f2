/** After a miss, this many transactions go by before the fast path is tried again. */
const restsFor = 16;
const classesMax = 10_000;

/**
 * Request classes for which the fast path failed, because some jobs are unique or cost more than the units
 * left. A failed attempt costs a transaction, so the fast path is not tried again at once. 34 grants of
 * unique jobs take 36 transactions, and 68 without this (`test/engine/dispatch/dispatcher.test.ts`).
 */
export class FastPathBackoff {
  readonly #left = new Map<string, number>();

  noteMiss(requestClass: string): void {
    if (this.#left.size >= classesMax) this.#left.clear();
    this.#left.set(requestClass, restsFor);
  }

  /** Whether to try the fast path. Each refusal counts towards the next attempt. */
  mayTry(requestClass: string): boolean {
    const left = this.#left.get(requestClass);
    if (left === undefined) return true;
    if (left > 1) this.#left.set(requestClass, left - 1);
    else this.#left.delete(requestClass);
    return false;
  }
}

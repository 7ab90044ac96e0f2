/** After how many transactions it is tried again. */
const restsFor = 16;
const kindsMax = 10_000;

/**
 * Kinds of jobs that could not be given out without deciding about each, because some are unique, or too dear for what is
 * left. Trying in vain costs a transaction, so it is not tried again at once.
 */
export class FastPathBackoff {
  readonly #left = new Map<string, number>();

  noteMiss(kind: string): void {
    if (this.#left.size >= kindsMax) this.#left.clear();
    this.#left.set(kind, restsFor);
  }

  /** Whether to try; each time it says no counts. */
  mayTry(kind: string): boolean {
    const left = this.#left.get(kind);
    if (left === undefined) return true;
    if (left > 1) this.#left.set(kind, left - 1);
    else this.#left.delete(kind);
    return false;
  }
}

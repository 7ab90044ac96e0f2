import type { Sql } from '../store/sql.ts';
import { ensureLanes, type Lane, laneKey } from '../store/statements/lanes.ts';

/** Lanes are few; whoever makes a new one for every job pays for a look at the database instead. */
const knownMax = 10_000;

/**
 * Knows the numbers of lanes. A lane that was seen once is never asked for again, because lanes do not change and
 * their numbers stay; the memory is emptied when it is full.
 */
export class LaneDirectory {
  readonly #known = new Map<string, number>();
  readonly #keys = new Map<string, string>();

  /** The numbers of these lanes, in their order. New ones are made. */
  async numbersOf(sql: Sql, lanes: readonly Lane[]): Promise<number[]> {
    let before: { lane: Lane; key: string } | undefined;
    const keys = lanes.map((lane) => {
      // A batch mostly comes from one submitter, and one job in it is like the one before.
      if (!before || !isPlainlySame(before.lane, lane)) before = { lane, key: this.#keyOf(lane) };
      return before.key;
    });
    // Taken before the wait: while it lasts, other batches may fill the memory and empty it.
    const numbers = new Map<string, number>();
    const missing = new Map<string, Lane>();
    for (let i = 0; i < lanes.length; i++) {
      const key = keys[i] as string;
      const known = this.#known.get(key);
      if (known === undefined) missing.set(key, lanes[i] as Lane);
      else numbers.set(key, known);
    }
    if (missing.size > 0) {
      const found = await ensureLanes(sql, missing);
      for (const [key, number] of found) numbers.set(key, number);
      this.#remember(found);
    }
    return keys.map((key) => {
      const number = numbers.get(key);
      if (number === undefined) throw new Error('a lane that was just made is not there');
      return number;
    });
  }

  #remember(found: ReadonlyMap<string, number>): void {
    if (this.#known.size + found.size > knownMax) this.#known.clear();
    for (const [key, number] of found) this.#known.set(key, number);
  }

  /** A digest costs more than the rest of a submission does, so the usual lanes keep theirs. */
  #keyOf(lane: Lane): string {
    const words = JSON.stringify([lane.stream, lane.addonId, lane.jobType, lane.requires, lane.heavy]);
    const known = this.#keys.get(words);
    if (known !== undefined) return known;
    if (this.#keys.size >= knownMax) this.#keys.clear();
    const key = laneKey(lane);
    this.#keys.set(words, key);
    return key;
  }
}

const isPlainlySame = (a: Lane, b: Lane): boolean =>
  a.jobType === b.jobType &&
  a.addonId === b.addonId &&
  a.stream === b.stream &&
  sameWords(a.requires, b.requires) &&
  sameWords(a.heavy, b.heavy);

const sameWords = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((word, i) => word === b[i]);

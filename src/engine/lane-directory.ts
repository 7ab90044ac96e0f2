import type { Sql } from '../store/sql.ts';
import { ensureLanes, type Lane, laneKey, laneWords } from '../store/statements/lanes.ts';

/** Lanes are few; whoever makes a new one for every job pays for a look at the database instead. */
const knownMax = 10_000;

/**
 * Knows the numbers of lanes. A lane that was seen once is never asked for again, because lanes do not change and
 * their numbers stay; the memory is emptied when it is full.
 */
export class LaneDirectory {
  /** By their words; the digest is needed only to ask the database. */
  readonly #known = new Map<string, number>();

  /** The numbers of these lanes, in their order. New ones are made. */
  async numbersOf(sql: Sql, lanes: readonly Lane[]): Promise<number[]> {
    let before: { lane: Lane; words: string } | undefined;
    const named = lanes.map((lane) => {
      // A batch mostly comes from one submitter, and one job in it is like the one before.
      if (!before || !isPlainlySame(before.lane, lane)) before = { lane, words: laneWords(lane) };
      return before.words;
    });
    // Taken before the wait: while it lasts, other batches may fill the memory and empty it.
    const numbers = new Map<string, number>();
    const missing = new Map<string, Lane>();
    for (let i = 0; i < lanes.length; i++) {
      const words = named[i] as string;
      const known = this.#known.get(words);
      if (known === undefined) missing.set(words, lanes[i] as Lane);
      else numbers.set(words, known);
    }
    if (missing.size > 0) {
      const found = await makeLanes(sql, missing);
      for (const [words, number] of found) numbers.set(words, number);
      this.#remember(found);
    }
    return named.map((words) => numbers.get(words) as number);
  }

  #remember(found: ReadonlyMap<string, number>): void {
    if (this.#known.size + found.size > knownMax) this.#known.clear();
    for (const [words, number] of found) this.#known.set(words, number);
  }
}

/** The numbers of lanes that are not known yet, by their words. */
async function makeLanes(sql: Sql, missing: ReadonlyMap<string, Lane>): Promise<Map<string, number>> {
  const keyed = [...missing].map(([words, lane]) => ({ words, lane, key: laneKey(lane) }));
  const byKey = await ensureLanes(sql, new Map(keyed.map(({ key, lane }) => [key, lane])));
  const found = new Map<string, number>();
  for (const { words, key } of keyed) {
    const number = byKey.get(key);
    if (number === undefined) throw new Error('a lane that was just made is not there');
    found.set(words, number);
  }
  return found;
}

const isPlainlySame = (a: Lane, b: Lane): boolean =>
  a.jobType === b.jobType &&
  a.addonId === b.addonId &&
  a.stream === b.stream &&
  a.unique === b.unique &&
  sameWords(a.requires, b.requires) &&
  sameWords(a.heavy, b.heavy);

const sameWords = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((word, i) => word === b[i]);

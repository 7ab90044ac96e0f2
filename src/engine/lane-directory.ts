import type { Sql } from '../store/sql.ts';
import { type Lane, type LanePlace, laneWords, makeLanes } from '../store/statements/lanes.ts';

/** Lanes that are remembered. A submitter with a new lane for each job pays for a look at the database instead. */
const knownMax = 10_000;

/**
 * Remembers the places of lanes, so that a submission asks the database only for lanes that are new to this server.
 *
 * A lane may be removed while it is remembered here; see `lane-sweeper.ts`. The statement that submits jobs notices that, writes
 * nothing, and its caller says `forget`. What is remembered is otherwise never wrong: a lane never changes. The memory is emptied
 * when it is full.
 */
export class LaneDirectory {
  /** By their words; the digest is needed only to ask the database. */
  readonly #known = new Map<string, LanePlace>();

  /** The places of these lanes, in their order. New ones are made. */
  async placesOf(sql: Sql, lanes: readonly Lane[]): Promise<LanePlace[]> {
    let before: { lane: Lane; words: string } | undefined;
    const named = lanes.map((lane) => {
      // A batch mostly comes from one submitter, and one job in it is like the one before.
      if (!before || !isPlainlySame(before.lane, lane)) before = { lane, words: laneWords(lane) };
      return before.words;
    });
    // Taken before the wait: while it lasts, other batches may fill the memory and empty it.
    const places = new Map<string, LanePlace>();
    const missing = new Map<string, Lane>();
    for (let i = 0; i < lanes.length; i++) {
      const words = named[i] as string;
      const known = this.#known.get(words);
      if (known === undefined) missing.set(words, lanes[i] as Lane);
      else places.set(words, known);
    }
    if (missing.size > 0) {
      const found = await makeLanes(sql, missing);
      for (const [words, place] of found) places.set(words, place);
      this.#remember(found);
    }
    return named.map((words) => places.get(words) as LanePlace);
  }

  /** Some of these lanes have been removed. */
  forget(lanes: readonly Lane[]): void {
    for (const lane of lanes) this.#known.delete(laneWords(lane));
  }

  #remember(found: ReadonlyMap<string, LanePlace>): void {
    if (this.#known.size + found.size > knownMax) this.#known.clear();
    for (const [words, place] of found) this.#known.set(words, place);
  }
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

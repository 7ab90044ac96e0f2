import type { Sql } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { keepLanes, type Lane, type LaneTarget, laneText, makeLanes } from '../../store/sql/queue/lanes.ts';

/** Lanes that are remembered. A submitter with a new lane for each job pays for a look at the database instead. */
const knownMax = 10_000;

/**
 * Remembers the places of lanes, so that a submission asks the database only for lanes that are new to this server.
 *
 * A lane may be removed while it is remembered here; see `lane-sweeper.ts`. The statement that submits jobs notices that and writes
 * nothing. Its caller then submits in a transaction that keeps the lanes (`keeping`), and the new places are remembered. What is
 * remembered is otherwise never wrong: a lane never changes. The memory is emptied when it is full.
 */
export class LaneCache {
  /** By their words; the digest is needed only to ask the database. */
  readonly #known = new Map<string, LaneTarget>();

  /** The places of these lanes, in their order; nothing where one was removed just then. New ones are made. */
  async placesOf(sql: Sql, lanes: readonly Lane[]): Promise<LaneTarget[] | undefined> {
    let before: { lane: Lane; words: string } | undefined;
    const named = lanes.map((lane) => {
      // A batch mostly comes from one submitter, and one job in it is like the one before.
      if (!before || !isPlainlySame(before.lane, lane)) before = { lane, words: laneText(lane) };
      return before.words;
    });
    // Taken before the wait: while it lasts, other batches may fill the memory and empty it.
    const places = new Map<string, LaneTarget>();
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
      if (found.size < missing.size) return undefined;
    }
    return named.map((words) => places.get(words) as LaneTarget);
  }

  /** Works in a transaction before whose end none of these lanes is removed. Those that are not there are made. */
  async keeping<T>(
    database: Database,
    lanes: readonly Lane[],
    work: (sql: Sql, places: readonly LaneTarget[]) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const named = lanes.map((lane) => ({ lane, words: laneText(lane) }));
    const wanted = new Map(named.map(({ lane, words }) => [words, lane]));
    const { kept, answer } = await database.transaction(async (sql) => {
      const kept = await keepLanes(sql, wanted);
      const places = named.map(({ words }) => kept.get(words) as LaneTarget);
      return { kept, answer: await work(sql, places) };
    }, signal);
    this.#remember(kept);
    return answer;
  }

  #remember(found: ReadonlyMap<string, LaneTarget>): void {
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

import type { Sql } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { keepLanes, type Lane, type LaneTarget, laneText, makeLanes } from '../../store/sql/queue/lanes.ts';

/** Maximum lanes in the cache. A submitter with a new lane for each job pays for a query instead. */
const knownMax = 10_000;

/**
 * Caches lanes, so that a submission queries the database only for lanes that are new to this server.
 *
 * A lane may be removed while it is in the cache; see `lane-sweeper.ts`. The statement that submits jobs
 * notices that and writes nothing. Its caller then submits in a transaction that keeps the lanes (`keeping`),
 * and the cache gets the new lanes. Otherwise the cache is never stale, because a lane never changes. A full
 * cache is cleared.
 */
export class LaneCache {
  /** By the lane's text; its digest is needed only for the query. */
  readonly #known = new Map<string, LaneTarget>();

  /**
   * The targets of these lanes, in their order; undefined if one was removed at that moment. New lanes are
   * created.
   */
  async placesOf(sql: Sql, lanes: readonly Lane[]): Promise<LaneTarget[] | undefined> {
    let before: { lane: Lane; words: string } | undefined;
    const named = lanes.map((lane) => {
      // A batch mostly comes from one submitter, and a job in it mostly equals the previous one.
      if (!before || !isPlainlySame(before.lane, lane)) before = { lane, words: laneText(lane) };
      return before.words;
    });
    // Copied before the query: while it runs, other batches may fill the cache and clear it.
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

  /**
   * Runs `work` in a transaction that keeps these lanes from being removed until it ends. Missing lanes are
   * created.
   */
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

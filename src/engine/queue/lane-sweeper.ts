/**
 * Removes idle lanes and their requirement paths. A database in which a million types or sets of requirements
 * were once submitted is like any other afterwards.
 *
 * Guarantees:
 * - No job is lost, whatever is submitted meanwhile; see `store/sql/queue/sweep-lanes.ts` and
 *   `store/sql/queue/sweep-paths.ts`.
 * - No caller waits longer than one slice takes. A slice reads `sweepSlice` rows in one transaction, and the
 *   sweeper then rests several times as long as the slice took.
 * - A round ends after `roundMs` at the latest, and the next one continues from there.
 * - One server sweeps at a time.
 * - Up to `keptMax` lanes are kept, so that lanes of a usual installation stay, idle or not. The exception is
 *   more than `pathsKeptMax` path steps, because a claim reads all steps that suit its worker.
 *
 * Lifecycle: asleep, or in a round. `stop` waits for the current slice.
 *
 * Failure modes: a round that fails is logged and followed by another one. A server that ends in a slice
 * leaves all as it was.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { TransactionSql } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { sweepLanes } from '../../store/sql/queue/sweep-lanes.ts';
import { sweepPaths } from '../../store/sql/queue/sweep-paths.ts';
import { hasMore, rouseSweeps, type SweptSlice, type SweptTable } from '../../store/sql/queue/sweep-walks.ts';

const sleepMs = 30_000;
const firstMs = 15_000;
const keptMax = 1_000;
const pathsKeptMax = 100;
const roundMs = 20_000;
/** Time between two walks over all lanes or all paths. */
const walkRestMs = 5 * 60_000;
const restShare = 4;
const restMinMs = 10;
const restMaxMs = 5_000;

export interface LaneSweeperOptions {
  database: Database;
  log: Log;
  /** Idle lanes that are kept; default 1,000. */
  keptMax?: number;
  /** Path steps that are kept; default 100. */
  pathsKeptMax?: number;
}

/** Handles one slice; `removed` is what the walk has removed so far. */
type Sweep = (sql: TransactionSql, removed: number) => Promise<SweptSlice | undefined>;

export class LaneSweeper implements Service {
  readonly #options: LaneSweeperOptions;
  readonly #keptMax: number;
  readonly #pathsKeptMax: number;
  readonly #rounds: PeriodicTask;
  #stopping = new AbortController();

  constructor(options: LaneSweeperOptions) {
    this.#options = options;
    this.#keptMax = options.keptMax ?? keptMax;
    this.#pathsKeptMax = options.pathsKeptMax ?? pathsKeptMax;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.#goOn(roundMs);
        return sleepMs;
      },
      onFailed: (error) => options.log.warn('failed to remove idle lanes', { error }),
      failedMs: sleepMs,
    });
  }

  start(): void {
    if (this.#stopping.signal.aborted) this.#stopping = new AbortController();
    this.#rounds.start(firstMs);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#rounds.stop();
  }

  /** Begins walks over all lanes and paths now, and returns how many lanes were removed. */
  async runOnce(): Promise<number> {
    await rouseSweeps(this.#options.database);
    return this.#goOn(Number.POSITIVE_INFINITY);
  }

  async #goOn(budgetMs: number): Promise<number> {
    const until = performance.now() + budgetMs;
    const lanes = await this.#sweepLanes(until);
    const paths = await this.#sweepPaths(until);
    if (lanes > 0 || paths > 0) this.#options.log.info('idle lanes were removed', { lanes, paths });
    return lanes;
  }

  #sweepLanes(until: number): Promise<number> {
    return this.#walk(
      until,
      (sql) => sweepLanes(sql, walkRestMs),
      async () => (await this.#hasMany('lanes')) || this.#hasMany('requirement_paths'),
    );
  }

  /** Walks until nothing is removed any more: each walk makes the steps before the removed ones idle. */
  async #sweepPaths(until: number): Promise<number> {
    let removed = 0;
    if (!(await this.#hasMany('requirement_paths'))) return removed;
    for (;;) {
      const more = await this.#walk(until, (sql, soFar) => sweepPaths(sql, soFar === 0 ? walkRestMs : 0));
      if (more === 0) return removed;
      removed += more;
    }
  }

  #hasMany(table: SweptTable): Promise<boolean> {
    return hasMore(this.#options.database, table, table === 'lanes' ? this.#keptMax : this.#pathsKeptMax);
  }

  /** Handles slices until the walk has ended, the time is up, or no more is needed. */
  async #walk(until: number, sweep: Sweep, isNeeded = async () => true): Promise<number> {
    const { signal } = this.#stopping;
    let removed = 0;
    while (!signal.aborted && performance.now() < until && (await isNeeded())) {
      const begunAt = performance.now();
      const slice = await this.#options.database.transaction((sql) => sweep(sql, removed));
      removed += slice?.removed ?? 0;
      if (!slice || slice.isOver) break;
      const restMs = (performance.now() - begunAt) * restShare;
      await delay(Math.min(Math.max(restMs, restMinMs), restMaxMs), undefined, { signal }).catch(() => {});
    }
    return removed;
  }
}

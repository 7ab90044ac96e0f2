/**
 * Deletes rows older than their retention: ended jobs with their outcomes and leases; outages; closed
 * contentions, ended owners, files without a holder, and file events; audit events.
 *
 * Guarantees:
 * - A job exists as a whole or not at all, and stays its whole retention, counted from its end.
 * - No call waits for the pruner. It deletes rows that are not written any more, a few hundred in one short
 *   statement. It skips rows that other transactions have locked, and rests between two slices for longer
 *   than they took.
 * - One server at a time deletes each kind of row, and continues where another has stopped; see
 *   `store/sql/maintenance/prune.ts`.
 *
 * Job events are dropped by partition instead; see `partition-maintainer.ts`.
 *
 * Lifecycle: asleep, or in a round. A round continues every walk that is not resting, until it ends. `stop`
 * waits for the current slice.
 *
 * Failure modes: a round that fails is logged and continued after `sleepMs`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import {
  pendingWalks,
  pruneSlice,
  type Retained,
  type Walk,
  wakeWalks,
  walks,
} from '../../store/sql/maintenance/prune.ts';

/** How often the pruner checks for work. */
const sleepMs = 60_000;
/** A starting server has other work to do first. */
const firstMs = 10_000;
/**
 * Between two slices the pruner rests this many times as long as the last one took, within these bounds. At
 * this rate it deletes thousands of jobs a second and takes a tenth of one connection's time. `npm run bench
 * -- --only prune` measures the effect on claims.
 */
const restShare = 9;
const restMinMs = 10;
const restMaxMs = 2_000;

/** Days to keep closed rows; 0 keeps them forever. */
export type Retention = Record<Retained, number>;

export interface PrunerOptions {
  database: Database;
  retention: Retention;
  log: Log;
}

export class Pruner implements Service {
  readonly #options: PrunerOptions;
  readonly #walks: readonly Walk[];
  readonly #rounds: PeriodicTask;
  #stopping = new AbortController();

  constructor(options: PrunerOptions) {
    this.#options = options;
    this.#walks = walks.filter(({ retained }) => options.retention[retained] > 0);
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.#goOn();
        return sleepMs;
      },
      onFailed: (error) => options.log.warn('the pruner could not finish its round', { error }),
      failedMs: sleepMs,
    });
  }

  start(): void {
    if (this.#walks.length === 0) return;
    if (this.#stopping.signal.aborted) this.#stopping = new AbortController();
    this.#rounds.start(firstMs);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#rounds.stop();
  }

  /** Begins every walk now, and returns how many rows were too old, each job counted as one. */
  async runOnce(): Promise<number> {
    await wakeWalks(this.#options.database, this.#walks);
    return this.#goOn();
  }

  async #goOn(): Promise<number> {
    const { database, log } = this.#options;
    const pruned: Record<string, number> = {};
    for (const walk of await pendingWalks(database, this.#walks)) {
      const rows = await this.#follow(walk);
      if (rows > 0) pruned[walk.name] = rows;
    }
    const rows = Object.values(pruned);
    if (rows.length > 0) log.info('what was too old was deleted', { rows: pruned });
    return rows.reduce((sum, count) => sum + count, 0);
  }

  /** Continues one walk to its end, or until another server has taken it over. */
  async #follow(walk: Walk): Promise<number> {
    const { database, retention } = this.#options;
    const { signal } = this.#stopping;
    for (let pruned = 0; ; ) {
      if (signal.aborted) return pruned;
      const begunAt = performance.now();
      const slice = await pruneSlice(database, walk, retention[walk.retained]);
      pruned += slice?.pruned ?? 0;
      if (!slice || slice.over) return pruned;
      const restMs = (performance.now() - begunAt) * restShare;
      await delay(Math.min(Math.max(restMs, restMinMs), restMaxMs), undefined, { signal }).catch(() => {});
    }
  }
}

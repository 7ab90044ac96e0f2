/**
 * Deletes what is older than it has to be kept: jobs that have ended, with their outcomes and leases; outages;
 * and of files the contentions that are closed, the owners that are long over, what nobody holds, and the history.
 *
 * Promises: a job is there as a whole or not at all, and stays its whole time, counted from its end. Nobody waits for it:
 * what it deletes nobody writes to any more, it takes a few hundred rows in one short statement, passes over what somebody
 * else has locked, and rests between two slices for longer than they took. Of several servers one is at each kind of row
 * at a time, and goes on where another has stopped; see `store/sql/maintenance/prune.ts`. The history of jobs is dropped in days
 * instead; see `partition-maintainer.ts`.
 *
 * Modes: asleep, or in a round. A round goes on with every walk that does not rest until that is over. One that fails is
 * logged and gone on with after `sleepMs`. `stop` lets a round finish its slice.
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

/** How often it is asked whether there is something to do. */
const sleepMs = 60_000;
/** A server that starts has other things to do. */
const firstMs = 10_000;
/**
 * Between two slices it rests so many times as long as the last one took, but at least and at most so long. It deletes
 * thousands of jobs a second then, and takes a tenth of one connection's time; `npm run bench -- --only prune` tells what
 * that leaves to claims.
 */
const restShare = 9;
const restMinMs = 10;
const restMaxMs = 2_000;

/** For how many days what is over is kept; 0 is for ever. */
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

  /** Begins every walk now, and says how many rows were too old, each job counted as one. */
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

  /** Goes on with one walk to its end, or until somebody else does. */
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

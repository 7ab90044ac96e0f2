/**
 * Removes idle lanes, so that a database in which a million types were once submitted is like any other afterwards.
 *
 * Guarantees: no job is lost, whatever is submitted meanwhile; see `statements/sweep-lanes.ts`. No caller waits for it longer
 * than one slice takes. A slice looks at `sweepSlice` lanes in one transaction, and the sweeper then rests several times as
 * long as the slice took. A round ends after `roundMs` at the latest, and the next one goes on from there. One server at a
 * time sweeps. Up to `keptMax` lanes are left alone, so that lanes of a usual installation stay, idle or not.
 *
 * Lifecycle: asleep, or in a round. `stop` lets a round finish its slice.
 *
 * Failure modes: a round that fails is logged and followed by another one. A server that ends in a slice leaves all as it was.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../log.ts';
import type { Database } from '../store/database.ts';
import { hasMoreLanes, rouseSweep, sweepLanes } from '../store/statements/sweep-lanes.ts';
import { Rounds } from './rounds.ts';
import type { Service } from './service.ts';

const sleepMs = 30_000;
const firstMs = 15_000;
const keptMax = 1_000;
const roundMs = 20_000;
/** Between two walks over all lanes. */
const walkRestMs = 5 * 60_000;
const restShare = 4;
const restMinMs = 10;
const restMaxMs = 5_000;

export interface LaneSweeperOptions {
  database: Database;
  log: Log;
  /** Idle lanes that are left alone; 1,000 where left out. */
  keptMax?: number;
}

export class LaneSweeper implements Service {
  readonly #options: LaneSweeperOptions;
  readonly #keptMax: number;
  readonly #rounds: Rounds;
  #stopping = new AbortController();

  constructor(options: LaneSweeperOptions) {
    this.#options = options;
    this.#keptMax = options.keptMax ?? keptMax;
    this.#rounds = new Rounds({
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

  /** Begins a walk over all lanes now, and says how many were removed. */
  async runOnce(): Promise<number> {
    await rouseSweep(this.#options.database);
    return this.#goOn(Number.POSITIVE_INFINITY);
  }

  async #goOn(budgetMs: number): Promise<number> {
    const { database, log } = this.#options;
    const { signal } = this.#stopping;
    const until = performance.now() + budgetMs;
    let removed = 0;
    while (!signal.aborted && performance.now() < until && (await hasMoreLanes(database, this.#keptMax))) {
      const begunAt = performance.now();
      const slice = await database.transaction((sql) => sweepLanes(sql, walkRestMs));
      removed += slice?.removed ?? 0;
      if (!slice || slice.isOver) break;
      const restMs = (performance.now() - begunAt) * restShare;
      await delay(Math.min(Math.max(restMs, restMinMs), restMaxMs), undefined, { signal }).catch(() => {});
    }
    if (removed > 0) log.info('idle lanes were removed', { lanes: removed });
    return removed;
  }
}

/**
 * Adds up the tallies that transactions leave, and sees to it that every minute in which a server lived is known to be
 * one.
 *
 * Promises: what this server has committed is in the totals and in the roll-ups of its minute about `foldMs` later, or
 * whenever the next server folds, if this one dies meanwhile: a tally is gone only with the commit that has added it up.
 * One server folds at a time; another that tries passes, and tries again. Nobody who works with jobs waits for it: it
 * locks only what is its own, and of the capacity it reads one row.
 *
 * The totals are compared with the jobs themselves every `auditMs`, by whichever server comes first. They can differ only
 * where somebody has laid hands on the database, or where an older server has worked on it.
 *
 * Modes: asleep until the next minute begins, or for `foldMs` after a commit; or in a round. A round handles batches until
 * nothing is left. One that fails is logged and tried again after `foldMs`. `stop` lets a round finish.
 */
import { usableUnits } from '../../domain/leases/capacity.ts';
import type { RollupLevel } from '../../domain/stats/series.ts';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { findCapacity } from '../../store/sql/leases/capacity.ts';
import {
  type Aggregated,
  aggregateTallies,
  lockAggregation,
  pruneRollups,
} from '../../store/sql/stats/aggregate.ts';
import { auditTotals, isAuditDue, type Repairs } from '../../store/sql/stats/audit.ts';
import type { Notifier } from '../wakeups/notifier.ts';

const aggregateMs = 1_000;
const minuteMs = 60_000;
/** How far into its minute a server looks at it: late enough that the minute has begun, whatever a timer makes of that. */
const sampleAtMs = 250;
const auditMs = 60 * minuteMs;
/** Tallies of one transaction at the most. */
const batchMax = 5_000;
/** Roll-ups that are removed in one round. */
const pruneMax = 2_000;
const dayMs = 24 * 60 * minuteMs;
/** Fine roll-ups are kept for as long as 2,000 points of them reach back, and a little longer; the others as it is set. */
const keptDays: readonly (readonly [level: RollupLevel, days: number])[] = [
  [1, 2],
  [5, 22],
  [60, Number.POSITIVE_INFINITY],
];

export interface StatsAggregatorOptions {
  database: Database;
  waker: Notifier;
  /** Units of capacity until they are set. */
  capacityTotal: number;
  /** For how long roll-ups are kept at the most; for ever where it is 0. */
  retentionDays: number;
  log: Log;
}

export class StatsAggregator implements Service {
  readonly #options: StatsAggregatorOptions;
  readonly #rounds: PeriodicTask;
  #pruneAt = Number.NEGATIVE_INFINITY;
  #auditAt = Number.NEGATIVE_INFINITY;

  constructor(options: StatsAggregatorOptions) {
    this.#options = options;
    const { waker, log } = options;
    this.#rounds = new PeriodicTask({
      run: () => this.#work(),
      onFailed: (error) => log.warn('the figures could not be added up', { error }),
      failedMs: aggregateMs,
    });
    waker.onCommit(() => this.#rounds.wakeIn(aggregateMs));
  }

  start(): void {
    this.#rounds.start();
  }

  stop(): Promise<void> {
    return this.#rounds.stop();
  }

  /**
   * Adds up all tallies that are committed, and says how many those were and what the time was; nothing where another
   * server is about it.
   */
  async runOnce(): Promise<Aggregated | undefined> {
    for (let tallies = 0; ; ) {
      const folded = await this.#options.database.transaction(async (sql) => {
        if (!(await lockAggregation(sql))) return undefined;
        const { total, busyRating } = await findCapacity(sql, this.#options.capacityTotal);
        return aggregateTallies(sql, batchMax, usableUnits(total, busyRating));
      });
      if (!folded) return undefined;
      tallies += folded.tallies;
      if (folded.tallies < batchMax) return { tallies, nowMs: folded.nowMs };
    }
  }

  /** Compares the totals with the jobs, repairs and tells what differs; nothing where another server is about it. */
  async audit(): Promise<Repairs | undefined> {
    const { database, log } = this.#options;
    const repairs = await database.transaction(async (sql) =>
      (await lockAggregation(sql)) ? auditTotals(sql) : undefined,
    );
    if (repairs && (repairs.wasTotalWrong || repairs.shortfalls.length > 0)) {
      log.error('the totals of the figures were wrong, and have been repaired', { ...repairs });
    }
    return repairs;
  }

  /** Says how long it is until there will be something to do whatever is committed. */
  async #work(): Promise<number> {
    const folded = await this.runOnce();
    // Another server that is folding may have looked before the last commit of this one.
    if (!folded) return aggregateMs;
    const { database, retentionDays } = this.#options;
    const now = performance.now();
    if (now >= this.#auditAt) {
      this.#auditAt = now + auditMs;
      if (await isAuditDue(database, auditMs)) await this.audit();
    }
    if (now >= this.#pruneAt) {
      let isMore = false;
      for (const [level, ownDays] of keptDays) {
        const days = Math.min(ownDays, retentionDays || Number.POSITIVE_INFINITY);
        if (days === Number.POSITIVE_INFINITY) continue;
        if ((await pruneRollups(database, level, days * dayMs, pruneMax)) === pruneMax) isMore = true;
      }
      this.#pruneAt = isMore ? now : now + minuteMs;
    }
    return minuteMs - (folded.nowMs % minuteMs) + sampleAtMs;
  }
}

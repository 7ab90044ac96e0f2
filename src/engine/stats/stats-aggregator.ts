/**
 * Adds up the tallies that transactions write, and records every minute in which a server was alive.
 *
 * Guarantees:
 * - A commit of this server is in the totals and in the roll-ups of its minute about `aggregateMs` later. If
 *   this server dies, the next aggregation of another server adds it: a tally is deleted only by the commit
 *   that has added it up.
 * - One server aggregates at a time; another that tries skips its turn and tries again.
 * - No call about jobs waits for it. It locks only its own rows, and reads one row of the capacity.
 * - One server compares the totals with the jobs every `auditMs`. They differ only if the database was
 *   changed by hand, or an older server has used it.
 *
 * Lifecycle: asleep until the next minute begins, or for `aggregateMs` after a commit; or in a round. A round
 * handles batches until nothing is left. `stop` waits for the round.
 *
 * Failure modes: a round that fails is logged and tried again after `aggregateMs`.
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
/**
 * When in its minute a server takes its sample: late enough that the minute has begun, despite inexact
 * timers.
 */
const sampleAtMs = 250;
const auditMs = 60 * minuteMs;
/** Maximum tallies of one transaction. */
const batchMax = 5_000;
/** Maximum roll-ups removed in one round. */
const pruneMax = 2_000;
const dayMs = 24 * 60 * minuteMs;
/**
 * Fine roll-ups are kept a little longer than 2,000 points of them reach back; the others as the setting
 * says.
 */
const keptDays: readonly (readonly [level: RollupLevel, days: number])[] = [
  [1, 2],
  [5, 22],
  [60, Number.POSITIVE_INFINITY],
];

export interface StatsAggregatorOptions {
  database: Database;
  notifier: Notifier;
  /** Units of capacity until they are set. */
  capacityTotal: number;
  /** Maximum age of roll-ups; 0 keeps them forever. */
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
    const { notifier, log } = options;
    this.#rounds = new PeriodicTask({
      run: () => this.#work(),
      onFailed: (error) => log.warn('the figures could not be added up', { error }),
      failedMs: aggregateMs,
    });
    notifier.onCommit(() => this.#rounds.wakeIn(aggregateMs));
  }

  start(): void {
    this.#rounds.start();
  }

  stop(): Promise<void> {
    return this.#rounds.stop();
  }

  /**
   * Adds up all committed tallies. Returns their number and the time; undefined if another server is
   * aggregating.
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

  /**
   * Compares the totals with the jobs, and repairs and logs differences. Undefined if another server is
   * aggregating.
   */
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

  /** Returns how long until there is work to do, whatever is committed meanwhile. */
  async #work(): Promise<number> {
    const folded = await this.runOnce();
    // Another server that is aggregating may have read the tallies before this one's last commit.
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

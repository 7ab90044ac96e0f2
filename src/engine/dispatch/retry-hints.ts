import { retryAfterMs } from '../../domain/jobs/backoff.ts';
import { RateMeter } from '../../lib/async/rate-meter.ts';
import type { Database } from '../../store/database.ts';
import { type NextDeadlines, nextDeadlinesInMs } from '../../store/sql/jobs/lock.ts';
import type { DeadlineCursor } from '../maintenance/deadline-cursor.ts';

/** How old the time of the next deadline may be: many are sent away at once, and one look serves them all. */
const lookMs = 250;

/**
 * Knows what is known of the near future, for those who have to be told when it is worth asking again: when the next
 * lease, claim or backoff may end, and how fast jobs and units have come free of late on this server.
 */
export class RetryHints {
  readonly #database: Database;
  readonly #deadlineCursor: DeadlineCursor;
  readonly #jobs = new RateMeter();
  readonly #units = new RateMeter();
  readonly #requests = new RateMeter();
  #nextDeadlines: NextDeadlines = { jobMs: null, leaseMs: null };
  #refreshedAt = Number.NEGATIVE_INFINITY;
  #refreshing: Promise<void> | undefined;

  constructor(database: Database, mark: DeadlineCursor) {
    this.#database = database;
    this.#deadlineCursor = mark;
  }

  /** So many jobs have come into the queue. */
  noteJobsReady(count: number): void {
    this.#jobs.count(count);
  }

  /** So many units have come free. */
  noteUnitsFreed(units: number): void {
    this.#units.count(units);
  }

  /** When an asker should come again who was sent away for want of jobs, or of so many units. */
  async retryAfterMs(missing: { jobs: number } | { units: number }): Promise<number> {
    this.#requests.count(1);
    await this.#refreshDeadlines();
    const now = performance.now();
    const left = (ms: number | null) => (ms === null ? null : Math.max(ms - (now - this.#refreshedAt), 0));
    const asking = this.#requests.perSecond(now);
    const prospects =
      'jobs' in missing
        ? {
            nextDueMs: left(this.#nextDeadlines.jobMs),
            missing: missing.jobs,
            perSecond: this.#jobs.perSecond(now),
          }
        : {
            nextDueMs: left(this.#nextDeadlines.leaseMs),
            missing: missing.units,
            perSecond: this.#units.perSecond(now),
          };
    return retryAfterMs({ ...prospects, asking }, Math.random());
  }

  #refreshDeadlines(): Promise<void> {
    if (performance.now() - this.#refreshedAt < lookMs) return Promise.resolve();
    this.#refreshing ??= this.#ask().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #ask(): Promise<void> {
    this.#nextDeadlines = await nextDeadlinesInMs(this.#database, this.#deadlineCursor.fromMs);
    this.#refreshedAt = performance.now();
  }
}

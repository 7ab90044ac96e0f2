import { retryAfterMs } from '../../domain/jobs/backoff.ts';
import { Pace } from '../../lib/async/rate-meter.ts';
import type { Database } from '../../store/database.ts';
import { type Soon, soonestInMs } from '../../store/sql/jobs/lock.ts';
import type { DueMark } from '../maintenance/deadline-cursor.ts';

/** How old the time of the next deadline may be: many are sent away at once, and one look serves them all. */
const lookMs = 250;

/**
 * Knows what is known of the near future, for those who have to be told when it is worth asking again: when the next
 * lease, claim or backoff may end, and how fast jobs and units have come free of late on this server.
 */
export class Prospects {
  readonly #database: Database;
  readonly #mark: DueMark;
  readonly #jobs = new Pace();
  readonly #units = new Pace();
  readonly #askers = new Pace();
  #soon: Soon = { jobMs: null, leaseMs: null };
  #lookedAt = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | undefined;

  constructor(database: Database, mark: DueMark) {
    this.#database = database;
    this.#mark = mark;
  }

  /** So many jobs have come into the queue. */
  jobsCame(count: number): void {
    this.#jobs.count(count);
  }

  /** So many units have come free. */
  unitsCame(units: number): void {
    this.#units.count(units);
  }

  /** When an asker should come again who was sent away for want of jobs, or of so many units. */
  async retryAfterMs(missing: { jobs: number } | { units: number }): Promise<number> {
    this.#askers.count(1);
    await this.#look();
    const now = performance.now();
    const left = (ms: number | null) => (ms === null ? null : Math.max(ms - (now - this.#lookedAt), 0));
    const asking = this.#askers.perSecond(now);
    const prospects =
      'jobs' in missing
        ? { nextDueMs: left(this.#soon.jobMs), missing: missing.jobs, perSecond: this.#jobs.perSecond(now) }
        : {
            nextDueMs: left(this.#soon.leaseMs),
            missing: missing.units,
            perSecond: this.#units.perSecond(now),
          };
    return retryAfterMs({ ...prospects, asking }, Math.random());
  }

  #look(): Promise<void> {
    if (performance.now() - this.#lookedAt < lookMs) return Promise.resolve();
    this.#looking ??= this.#ask().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #ask(): Promise<void> {
    this.#soon = await soonestInMs(this.#database, this.#mark.fromMs);
    this.#lookedAt = performance.now();
  }
}

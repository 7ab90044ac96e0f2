/**
 * Maintains the daily partitions of `job_events`: creates those for the days to come, and drops those that
 * are too old.
 *
 * Guarantees:
 * - Every server creates the partitions of the next week before it serves, and again every `lookMs`, whether
 *   others do so or not.
 * - If that fails for a week, or the database's clock jumps, a writer that finds no partition creates it; see
 *   `store/database.ts`. An error is logged long before.
 * - A partition is dropped when all its events are old enough, by one server at a time. No reader or writer
 *   waits for that; see `store/sql/events/partitions.ts`.
 *
 * Lifecycle: asleep, or in a round. `stop` ends a round after its current step.
 *
 * Failure modes: a round that fails is logged and tried again after `againMs`. So is a partition that could
 * not be dropped because a transaction has been reading it for long.
 */

import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import {
  createEventPartitions,
  daysAhead,
  dropEventPartition,
  readEventPartitions,
} from '../../store/sql/events/partitions.ts';

const lookMs = 60 * 60_000;
const againMs = 5 * 60_000;
/** With fewer days ahead an operator must act. */
const warnBelowDays = 3;
const lockTimeoutMs = 5_000;

export interface PartitionMaintainerOptions {
  database: Database;
  /** Days to keep job events; 0 keeps them forever. */
  days: number;
  log: Log;
  /** Delay of the first round after the start; default five minutes. */
  firstMs?: number;
  /** How long a drop waits for readers of the partition; default five seconds. */
  lockTimeoutMs?: number;
}

export class PartitionMaintainer implements Service {
  readonly #options: PartitionMaintainerOptions;
  readonly #rounds: PeriodicTask;
  #stopping = new AbortController();
  #daysAhead = 0;

  constructor(options: PartitionMaintainerOptions) {
    this.#options = options;
    this.#rounds = new PeriodicTask({
      run: async () => ((await this.#tryAll()) ? lookMs : againMs),
      onFailed: (error) => this.#warn(error),
      failedMs: againMs,
    });
  }

  /** For how many days ahead there were partitions at the last check. */
  get daysAhead(): number {
    return this.#daysAhead;
  }

  /**
   * Creates missing partitions before the server serves calls. If that fails, the existing ones may suffice,
   * and writers create missing ones.
   */
  async prepare(): Promise<void> {
    await this.#createPartitions().catch((error: unknown) => this.#warn(error));
  }

  start(): void {
    if (this.#stopping.signal.aborted) this.#stopping = new AbortController();
    this.#rounds.start(this.#options.firstMs ?? againMs);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#rounds.stop();
  }

  /** Creates missing partitions, drops old ones, and returns the names of those dropped. */
  async runOnce(): Promise<string[]> {
    await this.#createPartitions();
    return this.#dropPartitions();
  }

  async #createPartitions(): Promise<void> {
    const { database, log } = this.#options;
    const made = await createEventPartitions(database);
    if (made > 0) log.debug('the history was given room for the days to come', { days: made });
    this.#daysAhead = daysAhead(await readEventPartitions(database));
  }

  async #dropPartitions(): Promise<string[]> {
    const { database, days, log } = this.#options;
    const dropped: string[] = [];
    while (days > 0 && !this.#stopping.signal.aborted) {
      const timeout = AbortSignal.timeout(this.#options.lockTimeoutMs ?? lockTimeoutMs);
      const name = await dropEventPartition(
        database,
        days,
        AbortSignal.any([timeout, this.#stopping.signal]),
      );
      if (name === undefined) break;
      dropped.push(name);
    }
    if (dropped.length > 0) log.info('history that was too old was dropped', { parts: dropped });
    return dropped;
  }

  async #tryAll(): Promise<boolean> {
    const made = await this.#createPartitions().then(
      () => true,
      (error: unknown) => this.#warnIfFew(error),
    );
    const dropped = await this.#dropPartitions().then(
      () => true,
      (error: unknown) => {
        // A long reader ends at some time; a drop that was begun is finished then.
        if (!this.#stopping.signal.aborted)
          this.#options.log.info('old history could not be dropped yet', { error });
        return false;
      },
    );
    return made && dropped;
  }

  /** While there are enough partitions, a later round may try again. */
  async #warnIfFew(error: unknown): Promise<false> {
    if (this.#stopping.signal.aborted) return false;
    this.#warn(error);
    const days = await readEventPartitions(this.#options.database).then(daysAhead, () => undefined);
    this.#daysAhead = days ?? this.#daysAhead;
    if (this.#daysAhead < warnBelowDays)
      this.#options.log.error('the history has room for few days more', { days: this.#daysAhead });
    return false;
  }

  #warn(error: unknown): void {
    this.#options.log.warn('the daily partitions of the history could not be maintained', { error });
  }
}

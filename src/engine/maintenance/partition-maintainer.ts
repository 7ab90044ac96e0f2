/**
 * Keeps the history of jobs in days: makes the parts for the days to come, and drops those that are too old.
 *
 * Promises: every server makes sure before it serves that what happens can be written for a week, and again every
 * `lookMs`, whoever else does so. Should that fail for a week, or the database's clock jump, then whoever finds nothing to
 * write to makes it at that moment (see `store/database.ts`); it is logged long before. A part is dropped when everything in it
 * is old enough, by one server at a time, and nobody who writes or reads waits for that; see `store/sql/events/partitions.ts`.
 *
 * Modes: asleep, or in a round. One that fails is logged and tried again after `againMs`; so is a part that could not be
 * dropped because somebody has been looking at the history for long. `stop` lets a round go no further.
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
/** With fewer days to write to, something is wrong that somebody should look at. */
const warnBelowDays = 3;
const lockTimeoutMs = 5_000;

export interface PartitionMaintainerOptions {
  database: Database;
  /** For how many days the history is kept; 0 is for ever. */
  days: number;
  log: Log;
  /** How long after its start it looks again; five minutes where left out. */
  firstMs?: number;
  /** How long a part that is dropped waits for those who may be reading it; five seconds where left out. */
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

  /** Until how many days from now what happens can be written without more being made, at the last look. */
  get daysAhead(): number {
    return this.#daysAhead;
  }

  /** Makes what is missing before anybody is served. Should it fail, there may be enough for now, and whoever writes sees to it. */
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

  /** Makes what is missing, drops what is too old, and says what was dropped. */
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
      const patience = AbortSignal.timeout(this.#options.lockTimeoutMs ?? lockTimeoutMs);
      const name = await dropEventPartition(
        database,
        days,
        AbortSignal.any([patience, this.#stopping.signal]),
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
        // Whoever looks at it for long is done some time, and what was begun is finished then.
        if (!this.#stopping.signal.aborted)
          this.#options.log.info('old history could not be dropped yet', { error });
        return false;
      },
    );
    return made && dropped;
  }

  /** While there is room for days it may be tried again in peace. */
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
    this.#options.log.warn('the days of the history could not be seen to', { error });
  }
}

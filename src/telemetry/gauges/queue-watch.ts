/**
 * The state of the queue and the capacity, read from the database on request.
 *
 * Guarantees: at most one read a second and one at a time, for any number of callers. No caller waits longer
 * than `timeoutMs`.
 *
 * Failure modes: if the database has not answered by then, the state is unknown, and the read continues in
 * the background.
 */
import { capacityOf } from '../../domain/leases/capacity.ts';
import type { Capacity } from '../../domain/leases/lease.ts';
import { withTimeout } from '../../lib/async/with-timeout.ts';
import type { Database } from '../../store/database.ts';
import { type QueueGauges, readQueueGauges } from '../../store/sql/queue/gauges.ts';

const freshMs = 1_000;
const timeoutMs = 900;

export interface QueueState
  extends Pick<QueueGauges, 'queued' | 'ready' | 'oldestMs' | 'deadLetters' | 'leases' | 'claims'> {
  capacity: Capacity;
}

export class QueueWatch {
  readonly #database: Database;
  readonly #totalUnlessSet: number;
  readonly #nowMs: () => number;
  #reading: Promise<QueueState | undefined> | undefined;
  #last: { state: QueueState; atMs: number } | undefined;

  /** `nowMs` is a monotonic clock. */
  constructor(database: Database, totalUnlessSet: number, nowMs = () => performance.now()) {
    this.#database = database;
    this.#nowMs = nowMs;
    this.#totalUnlessSet = totalUnlessSet;
  }

  /** Undefined if the database does not answer. */
  async read(): Promise<QueueState | undefined> {
    const last = this.#last;
    if (last && this.#nowMs() - last.atMs < freshMs) return last.state;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return withTimeout(this.#reading, timeoutMs, undefined);
  }

  async #read(): Promise<QueueState | undefined> {
    const atMs = this.#nowMs();
    try {
      const { queued, ready, oldestMs, deadLetters, leases, claims, ...facts } = await readQueueGauges(
        this.#database,
        this.#totalUnlessSet,
      );
      const state = { queued, ready, oldestMs, deadLetters, leases, claims, capacity: capacityOf(facts) };
      this.#last = { state, atMs };
      return state;
    } catch {
      // `leasehold_database_up` reports that the database is unavailable.
      return undefined;
    }
  }
}

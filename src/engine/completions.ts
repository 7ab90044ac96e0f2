import { isCompletion } from '../domain/release.ts';
import type { Sql } from '../store/sql.ts';
import type { CapacityNow } from '../store/statements/capacity.ts';
import { type Completed, completeLeases } from '../store/statements/complete-leases.ts';
import { readJobs } from '../store/statements/read-jobs.ts';
import { type KnownLease, readLeases } from '../store/statements/read-leases.ts';
import type { EngineContext } from './context.ts';
import type { Ended, ReleaseCall } from './take-back.ts';
import { workOf } from './work.ts';

/**
 * Releases of jobs that went well, which is most of them, in one transaction and one statement: there is nothing to decide
 * but whether the lease is still theirs to end, and the statement sees that by itself once it has locked the row. Those
 * that it leaves alone, whatever the reason, have no answer here and are judged by `TakenBack`.
 */
export class Completions {
  readonly #calls: readonly ReleaseCall[];
  #completed: Completed | undefined;
  readonly #told = new Map<number, Ended['told']>();

  constructor(calls: readonly ReleaseCall[]) {
    this.#calls = calls;
  }

  /** Messages of streams have to be settled with their attempts, which takes more than one statement. */
  static suits({ release }: ReleaseCall, { keepsMessages }: EngineContext['transport']): boolean {
    return !keepsMessages && isCompletion(release);
  }

  get count(): number {
    return this.#calls.length;
  }

  /** Whether somebody is to be told of jobs, which have to be read once they have ended. */
  get isTold(): boolean {
    return this.#calls.some(({ wantsJob }) => wantsJob);
  }

  /** In the order of the calls. */
  get answers(): readonly (Ended | undefined)[] {
    return this.#calls.map((call, i) => {
      if (!this.#completed?.jobIds.has(i)) return undefined;
      const told = this.#told.get(i);
      return call.wantsJob && !told ? undefined : { outcome: done, told };
    });
  }

  /** Sends everything. Locks the capacity and returns the units, and some more that have come free before. */
  async run(
    sql: Sql,
    capacity: { totalUnlessSet: number; moreUnits: number },
    signal: AbortSignal | undefined,
  ): Promise<CapacityNow> {
    const completions = this.#calls.map(({ release }) => ({ ...release, result: release.resultData }));
    this.#completed = await completeLeases(sql, completions, capacity, signal);
    return this.#completed.capacity;
  }

  /** Reads what is to be told, in the same transaction. */
  async read(sql: Sql, signal: AbortSignal | undefined): Promise<void> {
    const { jobIds } = this.#completed ?? nothing;
    const wanted = this.#calls.flatMap((call, i) => (call.wantsJob && jobIds.has(i) ? i : []));
    if (wanted.length === 0) return;
    const leaseOf = (i: number) => (this.#calls[i] as ReleaseCall).release.leaseId;
    const [leases, jobs] = await Promise.all([
      readLeases(sql, wanted.map(leaseOf), signal),
      readJobs(
        sql,
        wanted.map((i) => jobIds.get(i) as string),
        signal,
      ),
    ]);
    for (const i of wanted) {
      const { lease } = leases.get(leaseOf(i)) as KnownLease;
      this.#told.set(i, { lease, found: jobs.get(lease.jobId) });
    }
  }

  /** Tells everybody, once it is committed, whom it concerns. */
  publish({ prospects, waker }: EngineContext): void {
    const { jobIds, units } = this.#completed ?? nothing;
    if (jobIds.size === 0) return;
    prospects.unitsCame(units);
    waker.publishWork(workOf([], jobIds.size));
    waker.publishJobs([...jobIds.values()]);
  }
}

const nothing = { jobIds: new Map<number, string>(), units: 0 };
const done = { requeued: false, deadLettered: false };

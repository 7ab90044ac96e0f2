import type { Release } from '../../domain/leases/lease.ts';
import { isCompletion } from '../../domain/leases/release.ts';
import { enqueueIdOf } from '../../domain/streams/stream-message.ts';
import { isUuid } from '../../lib/uuid.ts';
import type { Sql } from '../../store/connection/sql.ts';
import type { CapacityNow } from '../../store/sql/leases/capacity.ts';
import { type Completed, completeLeases } from '../../store/sql/leases/complete.ts';
import type { EngineContext } from '../context/engine-context.ts';
import { workAvailableOf } from '../wakeups/work-available.ts';
import type { Ended, ReleaseCall } from './release-batch.ts';

/**
 * Releases of jobs that went well, which is most of them, in one transaction and one statement: there is nothing to decide
 * but whether the lease is still theirs to end, and the statement sees that by itself once it has locked the row. Those
 * that it leaves alone, whatever the reason, have no answer here and are judged by `ReleaseBatch`.
 */
export class CompletionBatch {
  readonly #calls: readonly ReleaseCall[];
  #completed: Completed | undefined;

  constructor(calls: readonly ReleaseCall[]) {
    this.#calls = calls;
  }

  /**
   * Messages of streams have to be settled with their attempts, which takes more than one statement; and who proves themselves
   * with what can be no proof is told so.
   */
  static accepts({ release }: ReleaseCall, { keepsMessages }: EngineContext['transport']): boolean {
    const { token, jobId } = release;
    if (keepsMessages || !isCompletion(release) || !isUuidOrNull(token) || !isUuidOrNull(jobId)) return false;
    return release.message === undefined || attemptOfMessage(release) !== undefined;
  }

  get count(): number {
    return this.#calls.length;
  }

  /** In the order of the calls. */
  get answers(): readonly (Ended | undefined)[] {
    return this.#calls.map((call, i) => {
      if (!this.#completed?.jobIds.has(i)) return undefined;
      return {
        outcome: done,
        details: call.wantsJob ? this.#completed.details.get(call.release.leaseId) : undefined,
      };
    });
  }

  /** Sends everything. Locks the capacity and returns the units, and some more that have come free before. */
  async run(
    sql: Sql,
    capacity: { totalUnlessSet: number; moreUnits: number },
    signal: AbortSignal | undefined,
  ): Promise<CapacityNow> {
    const completions = this.#calls.map(({ release, wantsJob }) => {
      const { leaseId, workerId, token, jobId, resultData: result, metrics, message } = release;
      const named = { stream: message?.stream ?? null, attempt: attemptOfMessage(release) ?? null };
      return { leaseId, workerId, token, jobId, result, metrics, ...named, wantsJob };
    });
    this.#completed = await completeLeases(sql, completions, capacity, signal);
    return this.#completed.capacity;
  }

  /** Tells everybody, once it is committed, whom it concerns. */
  publish({ retryHints, notifier, metrics }: EngineContext): void {
    const { jobIds, units, runMs } = this.#completed ?? nothing;
    if (jobIds.size === 0) return;
    metrics.jobs.ended('DONE', jobIds.size);
    metrics.jobs.ran(runMs);
    retryHints.noteUnitsFreed(units);
    notifier.publishWorkAvailable(workAvailableOf([], jobIds.size));
    notifier.publishJobs([...jobIds.values()]);
  }
}

const nothing = { jobIds: new Map<number, string>(), units: 0, runMs: [] };
/** All tokens and ids are UUIDs, and nobody has to name them. */
const isUuidOrNull = (said: string | null): boolean => said === null || isUuid(said);

/**
 * The attempt that the named message tells of, or null where none is named. Undefined where it cannot be the attempt's
 * message, which is judged elsewhere.
 */
function attemptOfMessage({ jobId, message }: Release): number | null | undefined {
  const { messageId = null } = message ?? {};
  if (messageId === null) return null;
  const number = jobId === null ? '' : messageId.slice(jobId.length + 1);
  const isOwn =
    /^\d{1,9}$/.test(number) && messageId === enqueueIdOf({ jobId: jobId ?? '', attempt: Number(number) });
  return isOwn ? Number(number) : undefined;
}

const done = { requeued: false, deadLettered: false };

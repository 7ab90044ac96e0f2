import type { Release } from '../../domain/leases/lease.ts';
import { isCompletion } from '../../domain/leases/release.ts';
import { enqueueIdOf } from '../../domain/streams/stream-message.ts';
import { isUuid } from '../../lib/uuid.ts';
import type { Sql } from '../../store/connection/sql.ts';
import type { CapacityNow } from '../../store/sql/leases/capacity.ts';
import { type Completed, completeLeases } from '../../store/sql/leases/complete.ts';
import type { CommitEffects } from '../context/commit-effects.ts';
import type { EngineContext } from '../context/engine-context.ts';
import type { Ended, ReleaseCall } from './release-batch.ts';

/**
 * Successful releases, which are most releases, in one transaction and one statement. Nothing is to be
 * decided but whether the worker still holds the lease, and the statement checks that once it has locked the
 * row. Releases that the statement leaves alone, for any reason, have no answer here and are decided by
 * `ReleaseBatch`. This took the database from 31 to 28 µs a job, and saves a round trip (`npm run bench`,
 * `docs/performance.md`).
 */
export class CompletionBatch {
  readonly #calls: readonly ReleaseCall[];
  #completed: Completed | undefined;

  constructor(calls: readonly ReleaseCall[]) {
    this.#calls = calls;
  }

  /**
   * Whether a release may take this path. Two kinds may not. The message of a stream's job must be acked with
   * its attempt, which takes more than one statement. A token or id that cannot be valid needs an error of
   * its own.
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

  /**
   * Sends the statement, which locks the capacity and returns the units, together with units that were freed
   * before.
   */
  async run(
    sql: Sql,
    capacity: { totalUnlessSet: number; moreUnits: number },
    signal: AbortSignal | undefined,
  ): Promise<CapacityNow> {
    const completions = this.#calls.map(({ release, wantsJob }) => {
      const { leaseId, workerId, holder, token, jobId, resultData: result, metrics, message } = release;
      const named = { stream: message?.stream ?? null, attempt: attemptOfMessage(release) ?? null };
      return { leaseId, workerId, holder, token, jobId, result, metrics, ...named, wantsJob };
    });
    this.#completed = await completeLeases(sql, completions, capacity, signal);
    return this.#completed.capacity;
  }

  /** To be published after the commit. */
  get effects(): CommitEffects {
    if (!this.#completed || this.#completed.jobIds.size === 0) return {};
    const { jobIds, units, runMs } = this.#completed;
    return {
      ended: { ends: new Map([['DONE', jobIds.size]]), runMs },
      unitsFreed: units,
      roomMade: jobIds.size,
      jobsChanged: [...jobIds.values()],
    };
  }
}

/** All tokens and ids are UUIDs, and a caller may leave them out. */
const isUuidOrNull = (said: string | null): boolean => said === null || isUuid(said);

/**
 * The attempt of the named message, or null if the release names none. Undefined if it cannot be the message
 * of the attempt; `ReleaseBatch` decides that release.
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

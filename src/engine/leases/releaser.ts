import { jobNotFound, leaseNotFound } from '../../domain/errors.ts';
import type { Release, Released } from '../../domain/leases/lease.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { isUuid } from '../../lib/uuid.ts';
import { type Caller, type EngineContext, lockedRowBatchOptions } from '../context/engine-context.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { EndOutcome } from '../dispatch/lease-endings.ts';
import { type Ended, ReleaseBatch, type ReleaseCall } from '../dispatch/release-batch.ts';

/**
 * Ends leases for workers, through the dispatcher. A row that another transaction has locked delays no other
 * release: its release leaves the dispatcher's batch and waits by itself.
 */
export class Releaser {
  readonly #context: EngineContext;
  readonly #dispatcher: Dispatcher;
  readonly #lockedRowBatcher: Batcher<ReleaseCall, Ended>;

  constructor(context: EngineContext, dispatcher: Dispatcher) {
    this.#context = context;
    this.#dispatcher = dispatcher;
    this.#lockedRowBatcher = new Batcher<ReleaseCall, Ended>({
      meter: context.metrics.batch('release_held'),
      flush: (calls, signal) => this.#releaseLocked(calls, signal),
      ...lockedRowBatchOptions,
    });
  }

  /** Ends a lease, and returns the lease and its job. */
  async release(release: Release, { signal }: Caller): Promise<Released> {
    const { details } = await this.#run({ release, wantsJob: true }, signal);
    if (!details?.found) throw jobNotFound(details?.lease.jobId ?? '');
    const { lease, found } = details;
    return { lease, job: found.job, result: lease.requeued ? null : found.result };
  }

  /**
   * The same for stream workers, which need no job in the answer: reading it, with its payload, is half of
   * the work. If the release is refused because the lease has ended, the job has been requeued or ended
   * already, or is with the refusal.
   */
  async end(release: Release, { signal }: Caller): Promise<EndOutcome> {
    return (await this.#run({ release, wantsJob: false }, signal)).outcome;
  }

  /**
   * Ends many leases, named by their ids in lower case. Returns an answer for each, in the order given. If
   * another transaction has locked a row, its answer comes later than the others and delays them no longer
   * than necessary.
   */
  async endEach(
    releases: readonly Release[],
  ): Promise<readonly (EndOutcome | Error | Promise<EndOutcome>)[]> {
    const calls = releases.map((release) => ({ release, wantsJob: false }));
    const judged = await this.#dispatcher.release(calls, undefined);
    return judged.map((one, i) => {
      if (one instanceof Error) return one;
      if (one !== 'held') return one.outcome;
      return this.#lockedRowBatcher.run(calls[i] as ReleaseCall).then(({ outcome }) => outcome);
    });
  }

  /** Called after the dispatcher has closed, because running calls may still come here. */
  close(): Promise<void> {
    return this.#lockedRowBatcher.close();
  }

  async #run({ release, wantsJob }: ReleaseCall, signal: AbortSignal | undefined): Promise<Ended> {
    const { leaseId: lease_id, jobId: job_id, workerId: worker_id } = release;
    this.#context.metrics.noteIds({ lease_id, job_id, worker_id });
    if (!isUuid(release.leaseId)) throw leaseNotFound(release.leaseId);
    const call = { release: { ...release, leaseId: release.leaseId.toLowerCase() }, wantsJob };
    const [judged] = await this.#dispatcher.release([call], signal);
    if (judged instanceof Error) throw judged;
    return judged === undefined || judged === 'held' ? this.#lockedRowBatcher.run(call, signal) : judged;
  }

  async #releaseLocked(
    calls: readonly ReleaseCall[],
    signal: AbortSignal | undefined,
  ): Promise<(Ended | Error)[]> {
    const { database, outageMonitor, transport, leaseSubscriptions, settings } = this.#context;
    const { maxClaims } = settings;
    // The next answer may be that the lease has ended. The database decides first whether an outage rules
    // that out.
    await outageMonitor.runOnce();
    const taken = await database.transaction(
      (sql) =>
        new ReleaseBatch(calls, {
          wait: true,
          deferCapacity: false,
          transport,
          maxClaims,
          leaseSubscriptions,
          signal,
        }).run(sql),
      signal,
    );
    taken.publish(this.#context);
    if (taken.hasReplays) await database.awaitStandby(signal);
    return taken.answers as (Ended | Error)[];
  }
}

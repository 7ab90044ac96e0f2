import { holderOf } from '../../domain/access/holder.ts';
import { jobNotFound, leaseNotFound } from '../../domain/errors.ts';
import type { Release, Released } from '../../domain/leases/lease.ts';
import { type Attempts, LockAwareBatcher } from '../../lib/async/lock-aware-batcher.ts';
import { isUuid } from '../../lib/uuid.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { EndOutcome } from '../dispatch/lease-endings.ts';
import { type Ended, ReleaseBatch, type ReleaseCall } from '../dispatch/release-batch.ts';

/**
 * Ends leases for workers, through the dispatcher. A row that another transaction has locked delays no other
 * release: its release leaves the dispatcher's batch and waits by itself.
 */
export class Releaser {
  readonly #context: EngineContext;
  readonly #batcher: LockAwareBatcher<ReleaseCall, Ended | Error>;

  constructor(context: EngineContext, dispatcher: Dispatcher) {
    this.#context = context;
    this.#batcher = new LockAwareBatcher<ReleaseCall, Ended | Error>({
      first: (calls, signal) => dispatcher.release(calls, signal),
      flush: (calls, _wait, signal) => this.#releaseLocked(calls, signal),
      lockedMeter: context.metrics.batch('release_held'),
      waitingMax,
    });
  }

  /** Ends a lease, and returns the lease and its job. */
  async release(release: Release, caller: Caller): Promise<Released> {
    const { details } = await this.#run({ release, wantsJob: true }, caller);
    if (!details?.found) throw jobNotFound(details?.lease.jobId ?? '');
    const { lease, found } = details;
    return { lease, job: found.job, result: lease.requeued ? null : found.result };
  }

  /**
   * The same for stream workers, which need no job in the answer: reading it, with its payload, is half of
   * the work. If the release is refused because the lease has ended, the job has been requeued or ended
   * already, or is with the refusal.
   */
  async end(release: Release, caller: Caller): Promise<EndOutcome> {
    return (await this.#run({ release, wantsJob: false }, caller)).outcome;
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
    const answers = await this.#batcher.runEach(calls);
    return answers.map((one) => {
      if (one instanceof Error) return one;
      if (!(one instanceof Promise)) return one.outcome;
      const late = one.then(({ outcome }) => outcome);
      // A caller that has disconnected meanwhile does not await it.
      late.catch(() => {});
      return late;
    });
  }

  /** Called after the dispatcher has closed, because running calls may still come here. */
  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #run({ release, wantsJob }: ReleaseCall, { principal, signal }: Caller): Promise<Ended> {
    const { leaseId: lease_id, jobId: job_id, workerId: worker_id } = release;
    this.#context.metrics.noteIds({ lease_id, job_id, worker_id });
    if (!isUuid(release.leaseId)) throw leaseNotFound(release.leaseId);
    return this.#batcher.run(
      {
        release: { ...release, leaseId: release.leaseId.toLowerCase(), holder: holderOf(principal) },
        wantsJob,
      },
      signal,
    );
  }

  async #releaseLocked(
    calls: readonly ReleaseCall[],
    signal: AbortSignal | undefined,
  ): Promise<Attempts<Ended | Error>> {
    const { database, outageMonitor, publisher, transport, leaseSubscriptions, settings } = this.#context;
    const { maxClaims } = settings;
    // The next answer may be that the lease has ended. The database decides first whether an outage rules
    // that out.
    await outageMonitor.runOnce();
    const batch = await database.transaction(
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
    publisher.publish(batch.effects);
    if (batch.hasReplays) await database.awaitStandby(signal);
    return batch.answers;
  }
}

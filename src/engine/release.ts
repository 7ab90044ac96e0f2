import { jobNotFound, leaseNotFound } from '../domain/errors.ts';
import type { Release, Released } from '../domain/lease.ts';
import { checkOwner, checkProof, decideRelease, expired, lostError, released } from '../domain/leases.ts';
import { isLeased } from '../domain/machine.ts';
import { readPolicies } from '../store/statements/end-leases.ts';
import { type LockedJob, lockLeasedJobs } from '../store/statements/lock-jobs.ts';
import { readJobs } from '../store/statements/read-jobs.ts';
import { type KnownLease, readLeases } from '../store/statements/read-leases.ts';
import { Batcher } from './batcher.ts';
import { type Caller, type EngineContext, waitingMax } from './context.ts';
import { isUuid } from './ids.ts';
import { LeaseEnds } from './lease-ends.ts';
import { workOf } from './work.ts';

/** Releases of one transaction at the most. */
const releasesMax = 250;
/** A release weighs one for itself and one for every so many bytes, so that a transaction stays below some 4 MB. */
const bytesPerWeight = 16_384;
/** Rows that others have locked are waited for in small groups, so that one that stays locked holds up few. */
const heldMax = 4;
const heldFlights = 4;

/** A row that somebody else has, or that may not be judged yet: it is looked at once more, by itself. */
type Judged = Released | Error | 'held';

/**
 * Takes leases back from their workers. A batch locks all its rows in one order, judges one release after the other
 * against what it has locked, and writes everything together. A row that somebody else has locked holds up nobody: its
 * release leaves the batch and waits by itself. A release that comes again with the lease's token
 * is answered again, because its first answer may have been lost.
 */
export class Releaser {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<Release, Released | 'held'>;
  readonly #held: Batcher<Release, Released>;

  constructor(context: EngineContext) {
    this.#context = context;
    const weigh = ({ bytes }: Release) => 1 + bytes / bytesPerWeight;
    this.#batcher = new Batcher<Release, Released | 'held'>({
      flush: (calls, signal) => this.#flush(calls, false, signal),
      sizeMax: releasesMax,
      weigh,
      weightMax: releasesMax,
      waitingMax,
    });
    this.#held = new Batcher<Release, Released>({
      flush: async (calls, signal) => (await this.#flush(calls, true, signal)) as (Released | Error)[],
      sizeMax: heldMax,
      flightsMax: heldFlights,
      companionWeight: 1,
      waitingMax,
    });
  }

  async release(release: Release, { signal }: Caller): Promise<Released> {
    if (!isUuid(release.leaseId)) throw leaseNotFound(release.leaseId);
    const call = { ...release, leaseId: release.leaseId.toLowerCase() };
    const released = await this.#batcher.run(call, signal);
    return released === 'held' ? this.#held.run(call, signal) : released;
  }

  async close(): Promise<void> {
    await this.#batcher.close();
    await this.#held.close();
  }

  async #flush(calls: readonly Release[], wait: boolean, signal: AbortSignal | undefined): Promise<Judged[]> {
    const { database, waker, prospects, reaper, pulse, transport } = this.#context;
    // Who waits may be told next that the lease is over; whether that may be said is asked of the database.
    await (wait ? pulse.runOnce() : pulse.fresh());
    const leaseIds = [...new Set(calls.map(({ leaseId }) => leaseId))];
    const { ends, answers, jobIds } = await database.transaction(async (sql) => {
      const locked = await lockLeasedJobs(sql, leaseIds, wait, signal);
      const policies = await readPolicies(
        sql,
        [...locked.values()].map(({ jobId }) => jobId),
      );
      const ends = new LeaseEnds(transport);
      const ended = new Set<string>();
      const problems = calls.map((call): Error | 'held' | undefined => {
        const job = locked.get(call.leaseId);
        // A second release of the same batch finds the lease ended by the first.
        if (!job || !isLeased(job.state) || ended.has(call.leaseId)) return undefined;
        const problem = checkOwner(job, call.leaseId, call);
        if (problem)
          return problem.code === 'lease_not_active' && !job.awake && !wait ? 'held' : lostError(problem);
        const policy = policies.get(job.jobId);
        if (!policy) throw new Error(`job ${job.jobId} has no row of its own`);
        const cause = { kind: 'RELEASED', status: call.status } as const;
        ends.add(job, endOf(job, call), cause, handedIn(call), policy, call.workerId);
        ended.add(call.leaseId);
        return undefined;
      });
      await ends.write(sql);
      const leases = await readLeases(sql, leaseIds, signal);
      const jobs = await readJobs(
        sql,
        [...new Set([...leases.values()].map(({ lease }) => lease.jobId))],
        signal,
      );
      const first = new Set<string>();
      const answers = calls.map((call, i): Judged => {
        const problem = problems[i];
        if (problem) return problem;
        const known = leases.get(call.leaseId);
        if (!known) return leaseNotFound(call.leaseId);
        const { lease } = known;
        if (lease.state === 'ACTIVE' && !wait) return 'held';
        const isFirst = ended.has(call.leaseId) && !first.has(call.leaseId);
        first.add(call.leaseId);
        const refused = isFirst ? undefined : afterTheEnd(known, call);
        if (refused) return refused;
        const found = jobs.get(lease.jobId);
        if (!found) return jobNotFound(lease.jobId);
        const { job, result } = found;
        return { lease, job, result: lease.requeued ? null : result };
      });
      return { ends, answers, jobIds: [...jobs.keys()] };
    }, signal);
    if (ends.count > 0) {
      prospects.unitsCame(ends.units);
      prospects.jobsCame(ends.readyAgain.length);
      waker.publishWork(workOf(ends.readyAgain, ends.count));
      transport.settle(ends.settled);
      transport.send(ends.queued);
      waker.publishJobs(jobIds);
      if (ends.firstDelayMs !== undefined) reaper.expectIn(ends.firstDelayMs);
    }
    return answers;
  }
}

const endOf = (job: LockedJob, { status, retryable }: Release) => decideRelease(job, status, retryable);

const handedIn = ({ resultData, error, errorDetail, metrics }: Release) => ({
  result: resultData,
  error,
  errorDetail,
  metrics,
});

/** A lease that was over before: the same release again, with the token, is answered again, and no other. */
function afterTheEnd({ lease, token }: KnownLease, call: Release): Error | undefined {
  const stranger = checkProof({ jobId: lease.jobId, claimedBy: lease.workerId, leaseToken: token }, call);
  if (stranger) return lostError(stranger);
  if (lease.state !== 'RELEASED' || lease.endedAtMs === null) {
    return lostError(expired(lease.leaseId, lease.expiresAtMs));
  }
  const isReplay = call.token !== null && lease.releaseStatus === call.status;
  return isReplay ? undefined : lostError(released(lease.leaseId, lease.endedAtMs));
}

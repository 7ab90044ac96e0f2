import { jobNotFound, leaseNotFound } from '../domain/errors.ts';
import type { JobWithResult } from '../domain/job.ts';
import type { Lease, Release, Released } from '../domain/lease.ts';
import { checkOwner, checkProof, decideRelease, expired, lostError, released } from '../domain/leases.ts';
import { isLeased } from '../domain/machine.ts';
import { lockLeasedJobs } from '../store/statements/lock-jobs.ts';
import { readJobs } from '../store/statements/read-jobs.ts';
import { type KnownLease, knownLease, readLeases } from '../store/statements/read-leases.ts';
import { Batcher } from './batcher.ts';
import { type Caller, type EngineContext, heldBatches, waitingMax } from './context.ts';
import { isUuid } from './ids.ts';
import { LeaseEnds } from './lease-ends.ts';
import { workOf } from './work.ts';

/** Releases of one transaction at the most. */
const releasesMax = 250;
/** A release weighs one for itself and one for every so many bytes, so that a transaction stays below some 4 MB. */
const bytesPerWeight = 16_384;

interface ReleaseCall {
  release: Release;
  wantsJob: boolean;
}

/** A lease that has ended, with its job where that was wanted. */
interface Ended {
  lease: Lease;
  found: JobWithResult | undefined;
}

/** A row that somebody else has, or that may not be judged yet, is `held`: it is looked at once more, by itself. */
type Judged = Ended | Error | 'held';

/**
 * Takes leases back from their workers. A batch locks all its rows in one order, judges one release after the other
 * against what it has locked, and writes everything together. A row that somebody else has locked holds up nobody: its
 * release leaves the batch and waits by itself. A release that comes again with the lease's token
 * is answered again, because its first answer may have been lost.
 */
export class Releaser {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<ReleaseCall, Ended | 'held'>;
  readonly #held: Batcher<ReleaseCall, Ended>;

  constructor(context: EngineContext) {
    this.#context = context;
    const weigh = ({ release }: ReleaseCall) => 1 + release.bytes / bytesPerWeight;
    this.#batcher = new Batcher<ReleaseCall, Ended | 'held'>({
      flush: (calls, signal) => this.#flush(calls, false, signal),
      sizeMax: releasesMax,
      weigh,
      weightMax: releasesMax,
      waitingMax,
    });
    this.#held = new Batcher<ReleaseCall, Ended>({
      flush: async (calls, signal) => (await this.#flush(calls, true, signal)) as (Ended | Error)[],
      ...heldBatches,
    });
  }

  /** Ends a lease, and answers with all that became of it. */
  async release(release: Release, { signal }: Caller): Promise<Released> {
    const { lease, found } = await this.#run({ release, wantsJob: true }, signal);
    if (!found) throw jobNotFound(lease.jobId);
    return { lease, job: found.job, result: lease.requeued ? null : found.result };
  }

  /**
   * The same for workers of streams, who need not be told of the job: reading it, and its payload, is half of the work.
   * Where it refuses because the lease is over, the job has gone on already, or does so with the refusal.
   */
  async end(release: Release, { signal }: Caller): Promise<Lease> {
    return (await this.#run({ release, wantsJob: false }, signal)).lease;
  }

  async close(): Promise<void> {
    await this.#batcher.close();
    await this.#held.close();
  }

  async #run({ release, wantsJob }: ReleaseCall, signal: AbortSignal | undefined): Promise<Ended> {
    if (!isUuid(release.leaseId)) throw leaseNotFound(release.leaseId);
    const call = { release: { ...release, leaseId: release.leaseId.toLowerCase() }, wantsJob };
    const ended = await this.#batcher.run(call, signal);
    return ended === 'held' ? this.#held.run(call, signal) : ended;
  }

  async #flush(
    calls: readonly ReleaseCall[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Judged[]> {
    const { database, waker, prospects, reaper, pulse, transport } = this.#context;
    // Who waits may be told next that the lease is over; whether that may be said is asked of the database.
    await (wait ? pulse.runOnce() : pulse.fresh());
    const leaseIds = [...new Set(calls.map(({ release }) => release.leaseId))];
    const { ends, answers, over } = await database.transaction(async (sql) => {
      const locked = await lockLeasedJobs(sql, leaseIds, wait, signal);
      const ends = new LeaseEnds(transport);
      const taken = new Map<string, ReleaseCall>();
      const over = new Set<string>();
      const problems = calls.map((call): Error | 'held' | undefined => {
        const { release } = call;
        const job = locked.get(release.leaseId);
        // A second release of the same batch finds the lease ended by the first.
        if (!job || !isLeased(job.state) || taken.has(release.leaseId)) return undefined;
        const problem = checkOwner(job, release.leaseId, release);
        if (problem?.code === 'lease_not_active') {
          if (!job.awake && !wait) return 'held';
          // A worker of a stream who is told that it is over may let its message go, so it has to be over.
          if (job.awake && !call.wantsJob && !over.has(release.leaseId)) {
            ends.addExpired(job, actor);
            over.add(release.leaseId);
          }
        }
        if (problem) return lostError(problem);
        const cause = { kind: 'RELEASED', status: release.status } as const;
        const end = decideRelease(job, release.status, release.retryable);
        ends.add(job, end, cause, handedIn(release), release.workerId);
        taken.set(release.leaseId, call);
        return undefined;
      });
      const leases = new Map((await ends.write(sql)).map((record) => [record.lease_id, knownLease(record)]));
      const others = leaseIds.filter((leaseId) => !leases.has(leaseId));
      for (const [leaseId, known] of await readLeases(sql, others, signal)) leases.set(leaseId, known);
      const jobs = await readJobs(sql, wantedJobs(calls, leases), signal);
      const answers = calls.map((call, i): Judged => {
        const problem = problems[i];
        if (problem) return problem;
        const known = leases.get(call.release.leaseId);
        if (!known) return leaseNotFound(call.release.leaseId);
        const { lease } = known;
        if (lease.state === 'ACTIVE' && !wait) return 'held';
        const isFirst = taken.get(lease.leaseId) === call;
        const refused = isFirst ? undefined : afterTheEnd(known, call.release);
        return refused ?? { lease, found: jobs.get(lease.jobId) };
      });
      return { ends, answers, over };
    }, signal);
    if (ends.count > 0) {
      prospects.unitsCame(ends.units);
      prospects.jobsCame(ends.readyAgain.length);
      waker.publishWork(workOf(ends.readyAgain, ends.count));
      transport.settle(ends.settled);
      transport.send(ends.queued);
      waker.publishJobs(ends.jobIds);
      waker.publishLeases([...over]);
      if (ends.firstDelayMs !== undefined) reaper.expectIn(ends.firstDelayMs);
    }
    return answers;
  }
}

/** Who expires a lease that a release has found to have run out. */
const actor = 'release';

/** The jobs that some call is to be told of. */
function wantedJobs(calls: readonly ReleaseCall[], leases: ReadonlyMap<string, KnownLease>): string[] {
  const wanted = calls.flatMap(({ release, wantsJob }) => {
    const known = wantsJob ? leases.get(release.leaseId) : undefined;
    return known ? known.lease.jobId : [];
  });
  return [...new Set(wanted)];
}

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

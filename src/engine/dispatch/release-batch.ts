import { leaseNotFound } from '../../domain/errors.ts';
import type { JobWithResult } from '../../domain/jobs/job.ts';
import { isLeased } from '../../domain/jobs/state-machine.ts';
import type { Lease, Release } from '../../domain/leases/lease.ts';
import {
  checkMessage,
  checkOwner,
  checkProof,
  decideRelease,
  expired,
  lostError,
  released,
} from '../../domain/leases/lease-policy.ts';
import { type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type LockedJob, lockLeasedJobs } from '../../store/sql/jobs/lock.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import { type KnownLease, knownLease, readLeases } from '../../store/sql/leases/read.ts';
import type { CommitEffects } from '../context/commit-effects.ts';
import type { EngineContext } from '../context/engine-context.ts';
import { type EndOutcome, LeaseEndings } from './lease-endings.ts';

export interface ReleaseCall {
  release: Release;
  wantsJob: boolean;
}

/** What became of a job whose lease has ended, with the job and the lease if the caller wants them. */
export interface Ended {
  outcome: EndOutcome;
  details: { lease: Lease; found: JobWithResult | undefined } | undefined;
}

/** `rowLocked` also stands for a row that may not be decided yet. */
export type ReleaseResult = Ended | Error | RowLocked;

export interface ReleaseOptions {
  /** Waits for rows that other transactions have locked. */
  wait: boolean;
  /** Does not return the units. The statement that locks the capacity later in the transaction does. */
  deferCapacity: boolean;
  transport: EngineContext['transport'];
  maxClaims: number;
  /** Knows which streams have closed. */
  leaseSubscriptions: EngineContext['leaseSubscriptions'];
  signal: AbortSignal | undefined;
}

/** The actor of the expiry if a release finds its lease expired. */
const actor = 'release';

/**
 * The releases of one transaction. The batch locks all rows in one order, decides one release after the other
 * against the locked rows, and writes everything together. Without `wait`, a row that another transaction has
 * locked delays no other release. A repeated release with the lease's token gets the same answer again,
 * because the first answer may have been lost.
 */
export class ReleaseBatch {
  readonly #calls: readonly ReleaseCall[];
  readonly #options: ReleaseOptions;
  readonly #ends: LeaseEndings;
  /** The first release of each lease, and its job. */
  readonly #released = new Map<string, { call: ReleaseCall; jobId: string }>();
  readonly #expired = new Set<string>();
  /** An earlier release was answered again. */
  hasReplays = false;
  #problems: readonly (Error | RowLocked | undefined)[] = [];
  /** In the order of the calls. */
  answers: readonly ReleaseResult[] = [];

  constructor(calls: readonly ReleaseCall[], how: ReleaseOptions) {
    this.#calls = calls;
    this.#options = how;
    this.#ends = new LeaseEndings(how);
  }

  get count(): number {
    return this.#calls.length;
  }

  /** Units that were freed. */
  get units(): number {
    return this.#ends.units;
  }

  /** Locks and writes. */
  async run(sql: Sql): Promise<this> {
    await this.lock(sql);
    await this.write(sql);
    return this;
  }

  /** Locks the rows and decides. */
  async lock(sql: Sql): Promise<void> {
    if (this.#calls.length === 0) return;
    const leaseIds = [...new Set(this.#calls.map(({ release }) => release.leaseId))];
    const { wait, signal } = this.#options;
    const withMessages = this.#calls.some(({ release }) => release.message?.messageId);
    const locked = await lockLeasedJobs(sql, leaseIds, { wait, withMessages }, signal);
    this.#problems = this.#calls.map((call) => this.#decide(call, locked.get(call.release.leaseId)));
  }

  /**
   * Whether the writes wait for no other row and requeue no job, so that the next statement can be sent
   * without awaiting them.
   */
  get needsNoRequeue(): boolean {
    return this.#ends.needsNoRequeue;
  }

  /** Writes what was decided; with `deferCapacity` only the rows of its jobs. */
  async write(sql: Sql): Promise<void> {
    if (this.#calls.length === 0) return;
    const { wait, signal } = this.#options;
    const isWanted = this.#calls.some(({ wantsJob }) => wantsJob);
    const written = await this.#ends.write(sql, { later: this.#options.deferCapacity, wanted: isWanted });
    const leases = new Map(written.map((record) => [record.lease_id, knownLease(record)]));
    const others = this.#calls.filter((call) => !this.#isSettled(call) && !leases.has(call.release.leaseId));
    const otherIds = [...new Set(others.map(({ release }) => release.leaseId))];
    for (const [leaseId, known] of await readLeases(sql, otherIds, signal)) leases.set(leaseId, known);
    const jobs = await readJobs(sql, wantedJobs(this.#calls, leases), signal);
    this.answers = this.#calls.map((call, i): ReleaseResult => {
      const problem = this.#problems[i];
      if (problem) return problem;
      const { leaseId } = call.release;
      const first = this.#released.get(leaseId);
      const isFirst = first?.call === call;
      const outcome = isFirst ? this.#ends.outcomeOf(first.jobId) : undefined;
      if (outcome && !call.wantsJob) return { outcome, details: undefined };
      const known = leases.get(leaseId);
      if (!known) return leaseNotFound(leaseId);
      const { lease } = known;
      if (lease.state === 'ACTIVE' && !wait) return rowLocked;
      const refused = isFirst ? undefined : releaseOfEndedLease(known, call.release, this.#carrier);
      this.hasReplays ||= !isFirst && !refused;
      return refused ?? { outcome: outcome ?? lease, details: { lease, found: jobs.get(lease.jobId) } };
    });
  }

  /** To be published after the commit. */
  get effects(): CommitEffects {
    const { count, effects, firstDelayMs: nextDeadlineMs } = this.#ends;
    return count === 0 ? {} : { ...effects, leasesChanged: [...this.#expired], nextDeadlineMs };
  }

  get #carrier(): 'database' | 'redis' {
    return this.#options.transport.keepsMessages ? 'redis' : 'database';
  }

  /** The answer is known without reading the lease again. */
  #isSettled(call: ReleaseCall): boolean {
    return !call.wantsJob && this.#released.get(call.release.leaseId)?.call === call;
  }

  /**
   * The reason for refusing a release; undefined if the release is accepted or its lease has ended already.
   */
  #decide(call: ReleaseCall, job: LockedJob | undefined): Error | RowLocked | undefined {
    const { release } = call;
    // A second release of the same batch finds the lease ended by the first.
    if (!job || !isLeased(job.state) || this.#released.has(release.leaseId)) return undefined;
    const problem =
      checkProof(job, release) ??
      checkMessage({ ...job, attempt: job.attempts }, release.message, this.#carrier) ??
      checkOwner(job, release);
    if (problem?.code === 'lease_not_active') {
      // A statement that waited long for the row cannot decide this either.
      if (!job.awake) return rowLocked;
      // A stream worker that gets this refusal may ack its message, so the lease must have ended. It is
      // expired here.
      if (!call.wantsJob && !this.#expired.has(release.leaseId)) {
        // The release itself shows that the worker received the grant.
        const heard = { ...job, claimExpiresAtMs: null };
        this.#ends.addExpired(heard, actor, this.#options.leaseSubscriptions.lastDisconnectOf(job.leaseId));
        this.#expired.add(release.leaseId);
      }
    }
    if (problem) return lostError(problem);
    const cause = { kind: 'RELEASED', status: release.status } as const;
    const end = decideRelease(job, release.status, release.retryable);
    this.#ends.add(job, end, cause, outcomeOf(release), release.workerId);
    this.#released.set(release.leaseId, { call, jobId: job.jobId });
    return undefined;
  }
}

/** The jobs that callers want in their answers. */
function wantedJobs(calls: readonly ReleaseCall[], leases: ReadonlyMap<string, KnownLease>): string[] {
  const wanted = calls.flatMap(({ release, wantsJob }) => {
    const known = wantsJob ? leases.get(release.leaseId) : undefined;
    return known ? known.lease.jobId : [];
  });
  return [...new Set(wanted)];
}

const outcomeOf = ({ resultData, error, errorDetail, metrics }: Release) => ({
  result: resultData,
  error,
  errorDetail,
  metrics,
});

/**
 * A lease that had ended before: only the same release with the token gets its answer again. Any other is
 * refused.
 */
function releaseOfEndedLease(
  { lease, token, holder, stream, messageIds }: KnownLease,
  call: Release,
  carrier: 'database' | 'redis',
): Error | undefined {
  const stranger =
    checkProof({ jobId: lease.jobId, claimedBy: lease.workerId, holder, leaseToken: token }, call) ??
    checkMessage({ jobId: lease.jobId, attempt: lease.attempt, stream, messageIds }, call.message, carrier);
  if (stranger) return lostError(stranger);
  if (lease.state !== 'RELEASED' || lease.endedAtMs === null) {
    return lostError(expired(lease.leaseId, lease.expiresAtMs));
  }
  const isReplay = call.token !== null && lease.releaseStatus === call.status;
  return isReplay ? undefined : lostError(released(lease.leaseId, lease.endedAtMs));
}

/**
 * Extends leases.
 *
 * Guarantees:
 * - The verdict 'extended' is given only after the commit that made it true.
 * - A lease that has expired, ended or belongs to another worker is never extended, whichever transaction
 *   locked its row meanwhile.
 * - Heartbeats of all callers and streams share batches. A locked row delays only its own lease: its
 *   heartbeats leave the batch and wait by themselves.
 * - After an outage no lease is decided before the outage has been compensated; see
 *   `engine/maintenance/outage-monitor.ts`.
 */
import { holderOf } from '../../domain/access/holder.ts';
import { leaseNotFound } from '../../domain/errors.ts';
import type { Extended, Heartbeat, LeaseWithJob, Lost, Verdict } from '../../domain/leases/lease.ts';
import {
  checkProof,
  expired,
  lostError,
  released,
  unknownLease,
  wrongToken,
  wrongWorker,
} from '../../domain/leases/lease-policy.ts';
import { LockAwareBatcher, type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import { isUuid } from '../../lib/uuid.ts';
import { type ExtendResult, extendLeases, extendLeasesWithJobs } from '../../store/sql/leases/extend.ts';
import { type KnownLease, readLeases } from '../../store/sql/leases/read.ts';
import type { Counter } from '../../telemetry/registry.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';

/** Maximum heartbeats of one statement. */
const heartbeatsMax = 2_000;
/** Maximum heartbeats of a statement that returns jobs: it holds their row locks while it reads payloads. */
const shownMax = 32;
/** While statements wait for the disk, another one runs. */
const concurrentStatementsMax = 3;
/** The number of heartbeats that justifies a statement beside the running ones. */
const minHeartbeatsWhenBusy = 500;

type HeartbeatList = readonly Heartbeat[];
type BatchVerdict = Verdict | RowLocked;
/** A verdict with the lease and the job that the statement wrote. */
type VerdictWithJob = (Extended & LeaseWithJob) | Lost;

export class Heartbeats {
  readonly #context: EngineContext;
  readonly #batcher: LockAwareBatcher<Heartbeat, Verdict>;
  readonly #showingBatcher: LockAwareBatcher<Heartbeat, VerdictWithJob>;
  readonly #counts: { extended: Counter; lost: Counter };
  /** The server is about to stop, and informs workers of that. */
  draining = false;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#counts = context.metrics.heartbeats('leases');
    this.#batcher = new LockAwareBatcher<Heartbeat, Verdict>({
      flush: (heartbeats, wait, signal) => this.#extend(heartbeats, wait, signal),
      first: {
        meter: context.metrics.batch('heartbeat'),
        sizeMax: heartbeatsMax,
        concurrencyMax: concurrentStatementsMax,
        minWeightWhenBusy: minHeartbeatsWhenBusy,
      },
      lockedMeter: context.metrics.batch('heartbeat_held'),
      waitingMax,
    });
    this.#showingBatcher = new LockAwareBatcher<Heartbeat, VerdictWithJob>({
      flush: (heartbeats, wait, signal) => this.#extendWithJobs(heartbeats, wait, signal),
      first: { meter: context.metrics.batch('heartbeat'), sizeMax: shownMax, concurrencyMax: 2 },
      lockedMeter: context.metrics.batch('heartbeat_held'),
      waitingMax,
    });
  }

  /** Extends one lease, or throws the DomainError with the reason. */
  async heartbeat(heartbeat: Heartbeat, caller: Caller): Promise<Extended> {
    const [verdict] = await this.heartbeatMany([this.#checked(heartbeat, caller)], caller.signal);
    return this.#extendedOf(verdict, heartbeat, caller.peer);
  }

  /** The same for a caller that shows the lease and its job: as the heartbeat's own statement wrote them. */
  async heartbeatWithJob(heartbeat: Heartbeat, caller: Caller): Promise<Extended & LeaseWithJob> {
    const verdict = await this.#showingBatcher.run(this.#checked(heartbeat, caller), caller.signal);
    return this.#extendedOf(verdict, heartbeat, caller.peer);
  }

  /**
   * Extends many leases, named by their ids in lower case. Returns a verdict for each, in the order given.
   * Rejects only if the database fails.
   */
  async heartbeatMany(heartbeats: HeartbeatList, signal?: AbortSignal): Promise<readonly Verdict[]> {
    return Promise.all(await this.heartbeatEach(heartbeats, signal));
  }

  /** The same for callers that need not have all verdicts at once: verdicts on locked rows come later. */
  heartbeatEach(
    heartbeats: HeartbeatList,
    signal?: AbortSignal,
  ): Promise<readonly (Verdict | Promise<Verdict>)[]> {
    return this.#batcher.runEach(heartbeats, signal);
  }

  /** The state of leases, without a change: for verdicts that the server sends by itself. */
  async verdictsOf(leaseIds: readonly string[], signal?: AbortSignal): Promise<readonly Verdict[]> {
    const found = await readLeases(this.#context.database, leaseIds, signal);
    return leaseIds.map((leaseId) => verdictOn(leaseId, found.get(leaseId)));
  }

  async close(): Promise<void> {
    await this.#batcher.close();
    await this.#showingBatcher.close();
  }

  #checked(heartbeat: Heartbeat, { principal }: Caller): Heartbeat {
    const { leaseId, jobId: job_id, workerId: worker_id } = heartbeat;
    this.#context.metrics.noteIds({ lease_id: leaseId, job_id, worker_id });
    if (!isUuid(leaseId)) throw leaseNotFound(leaseId);
    return { ...heartbeat, leaseId: leaseId.toLowerCase(), holder: holderOf(principal) };
  }

  #extendedOf<Kept extends Extended>(
    verdict: Kept | Lost | undefined,
    { workerId }: Heartbeat,
    peer: string,
  ): Kept {
    if (!verdict) throw new Error('a heartbeat got no verdict');
    if (verdict.kind === 'lost') throw lostError(verdict);
    this.#context.workers.heard(workerId, peer);
    return verdict;
  }

  async #extend(
    heartbeats: HeartbeatList,
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<BatchVerdict[]> {
    await this.#decideOutage(wait);
    const merged = mergeDuplicates(heartbeats);
    const extended = await extendLeases(this.#context.database, merged, { wait, signal });
    return this.#verdictsFrom(extended, heartbeats, wait, signal);
  }

  async #extendWithJobs(
    heartbeats: HeartbeatList,
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<(VerdictWithJob | RowLocked)[]> {
    await this.#decideOutage(wait);
    const merged = mergeDuplicates(heartbeats);
    const extended = await extendLeasesWithJobs(this.#context.database, merged, { wait, signal });
    const verdicts = await this.#verdictsFrom(extended, heartbeats, wait, signal);
    return verdicts.map((verdict, i) => {
      if (verdict === rowLocked || verdict.kind === 'lost') return verdict;
      return { ...verdict, ...(extended.shown.get((heartbeats[i] as Heartbeat).leaseId) as LeaseWithJob) };
    });
  }

  /**
   * With `wait`, the verdict may be that the lease has ended. The database decides first whether an outage
   * rules that out.
   */
  #decideOutage(wait: boolean): Promise<void> {
    const { outageMonitor } = this.#context;
    return wait ? outageMonitor.runOnce() : outageMonitor.ensureFresh();
  }

  async #verdictsFrom(
    { nowMs, results, changedJobs }: ExtendResult,
    heartbeats: HeartbeatList,
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<BatchVerdict[]> {
    if (changedJobs.length > 0) this.#context.publisher.publish({ jobsChanged: changedJobs });
    const verdicts = new Array<BatchVerdict>(heartbeats.length);
    const unclear: number[] = [];
    let strangers = 0;
    for (let i = 0; i < heartbeats.length; i++) {
      const result = results[i];
      if (result?.kind === 'extended') {
        const { ttlRemainingMs, cancelRequested } = result;
        verdicts[i] = {
          kind: 'extended',
          expiresAtMs: nowMs + ttlRemainingMs,
          ttlRemainingMs,
          cancelRequested,
        };
      } else if (result?.kind === 'wrong worker' || result?.kind === 'wrong token') {
        verdicts[i] = result.kind === 'wrong worker' ? wrongWorker : wrongToken;
        strangers++;
      } else if (result?.kind === 'wrong holder') {
        verdicts[i] = whyLost(heartbeats[i] as Heartbeat, undefined);
        strangers++;
      } else unclear.push(i);
    }
    if (unclear.length > 0)
      await this.#explainLost(
        heartbeats,
        answerDuplicates(heartbeats, unclear, verdicts, results),
        wait,
        verdicts,
        signal,
      );
    this.#count(verdicts, unclear, strangers);
    return verdicts;
  }

  /**
   * Counts verdicts. Those that were clear at once are not read again. Heartbeats on locked rows are counted
   * when they have a verdict.
   */
  #count(verdicts: readonly BatchVerdict[], unclear: readonly number[], strangers: number): void {
    const { extended, lost } = this.#counts;
    extended.add(verdicts.length - unclear.length - strangers);
    lost.add(strangers);
    for (const i of unclear) {
      const verdict = verdicts[i] as BatchVerdict;
      if (verdict !== rowLocked) this.#counts[verdict.kind].add();
    }
  }

  /**
   * Explains leases that could not be extended: ended, unknown, or locked for a short time by another
   * transaction.
   */
  async #explainLost(
    heartbeats: HeartbeatList,
    unclear: readonly number[],
    waited: boolean,
    verdicts: BatchVerdict[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const ids = unclear.map((i) => (heartbeats[i] as Heartbeat).leaseId);
    const found = await readLeases(this.#context.database, ids, signal);
    for (const i of unclear) {
      const heartbeat = heartbeats[i] as Heartbeat;
      const known = found.get(heartbeat.leaseId);
      // Another transaction has locked the row, or the reaper has not handled the expiry yet. Both are tried
      // once more.
      const mayHold = known?.lease.state === 'ACTIVE' && mismatchOf(heartbeat, known) === undefined;
      verdicts[i] = mayHold && !waited ? rowLocked : whyLost(heartbeat, known);
    }
  }
}

/**
 * Answers duplicates: a lease named twice in a batch is extended once, and the other heartbeat is `not
 * found`. Both get the verdict of the first. Returns the rest.
 */
function answerDuplicates(
  heartbeats: HeartbeatList,
  unclear: readonly number[],
  verdicts: BatchVerdict[],
  results: ExtendResult['results'],
): number[] {
  const answered = new Map<string, Verdict>();
  for (const [i, { leaseId }] of heartbeats.entries()) {
    const verdict = verdicts[i];
    if (typeof verdict === 'object' && verdict.kind === 'extended') answered.set(leaseId, verdict);
  }
  return unclear.filter((i) => {
    if (results[i]?.kind !== 'not found') return true;
    const verdict = answered.get((heartbeats[i] as Heartbeat).leaseId);
    if (verdict) verdicts[i] = verdict;
    return verdict === undefined;
  });
}

/**
 * A statement writes a row once. Heartbeats that name a lease with the same proofs are therefore given the
 * same values: the last one set by any of them.
 */
function mergeDuplicates(heartbeats: HeartbeatList): HeartbeatList {
  if (heartbeats.every(({ progress, message }) => progress === null && message === null)) return heartbeats;
  const said = new Map<string, Pick<Heartbeat, 'progress' | 'message'>>();
  const nameOf = ({ leaseId, workerId, holder, token, jobId }: Heartbeat) =>
    JSON.stringify([leaseId, workerId, holder, token, jobId]);
  const names = heartbeats.map(nameOf);
  for (const [i, { progress, message }] of heartbeats.entries()) {
    const before = said.get(names[i] as string);
    said.set(names[i] as string, {
      progress: progress ?? before?.progress ?? null,
      message: message ?? before?.message ?? null,
    });
  }
  return heartbeats.map((heartbeat, i) => ({ ...heartbeat, ...said.get(names[i] as string) }));
}

/** The owner is checked first, so that a stranger learns nothing about the lease. */
const whyLost = (heartbeat: Heartbeat, known: KnownLease | undefined): Lost =>
  known ? (mismatchOf(heartbeat, known) ?? overOf(known)) : unknownLease(heartbeat.leaseId);

const mismatchOf = (heartbeat: Heartbeat, { lease, token, holder }: KnownLease): Lost | undefined =>
  checkProof({ jobId: lease.jobId, claimedBy: lease.workerId, holder, leaseToken: token }, heartbeat);

const overOf = ({ lease: { leaseId, state, endedAtMs, expiresAtMs } }: KnownLease): Lost =>
  state === 'RELEASED' && endedAtMs !== null ? released(leaseId, endedAtMs) : expired(leaseId, expiresAtMs);

function verdictOn(leaseId: string, known: KnownLease | undefined): Verdict {
  if (!known) return unknownLease(leaseId);
  const { lease, ttlRemainingMs, cancelRequested } = known;
  if (lease.state !== 'ACTIVE' || ttlRemainingMs <= 0) return overOf(known);
  return { kind: 'extended', expiresAtMs: lease.expiresAtMs, ttlRemainingMs, cancelRequested };
}

/**
 * Grants and ends leases.
 *
 * Both lock the one capacity row until the commit is on disk, so concurrent transactions would mostly wait
 * for each other. The dispatcher therefore batches the releases and requests that arrive while a transaction
 * is running. The next transaction releases first, and grants from the freed units. A second transaction runs
 * beside the first only for a large batch; it gets as far as the capacity lock while the first waits for the
 * disk.
 *
 * Guarantees:
 * - A release never waits for a row that another transaction has locked, nor for the number of requests. It
 *   waits for the request ids of its batch, which another batch with the same request may have locked.
 * - A request that its transaction could not answer is returned as `again`. The acquirer repeats it, behind
 *   newer requests.
 * - Commits are published to all waiters before the callers get their answers.
 *
 * Lifecycle: `close` waits for the running batches.
 */
import { DomainError } from '../../domain/errors.ts';
import type { Grant } from '../../domain/leases/lease.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import type { TransactionSql } from '../../store/connection/sql.ts';
import { type EngineContext, waitingMax } from '../context/engine-context.ts';
import { type AcquireCall, type AcquireResult, again } from './acquire-call.ts';
import { AvailabilityProbe } from './availability-probe.ts';
import { CompletionBatch } from './completion-batch.ts';
import { FastPathBackoff } from './fast-path-backoff.ts';
import { GrantBatch, type UnschedulableScan } from './grant-batch.ts';
import { parkUnschedulable } from './park-unschedulable.ts';
import { ReleaseBatch, type ReleaseCall, type ReleaseResult } from './release-batch.ts';

type DispatchCall = { releases: readonly ReleaseCall[]; needDecision: boolean } | { acquire: AcquireCall };
type DispatchResult = readonly (ReleaseResult | undefined)[] | AcquireResult;

interface GrantSource {
  completionBatch: CompletionBatch;
  grantBatch: GrantBatch;
  /** Units that releases of the same transaction have freed before. */
  unitsFreed: number;
  /** No further query follows, so the commit may be sent right behind the last statement. */
  isLast: boolean;
}

/**
 * Weight of one transaction: a request or a release of 16 KiB weighs one, which keeps a transaction below
 * about 4 MB.
 */
const weightMax = 500;
const bytesPerWeight = 16_384;
/**
 * Weight of a request for many jobs at most. Such requests share the available jobs, and the fewer of them
 * share a batch, the less the others get.
 */
const countWeight = 25;
/** While one transaction waits for the disk, another may run, if its calls weigh at least this much. */
const concurrencyMax = 2;
const minWeightWhenBusy = 40;
/** Each request class takes a query of the queue while the capacity row is locked. */
const requestClassesMax = 8;
/**
 * Request classes that are remembered as recently granted; the bound matters while the dispatcher is never
 * idle.
 */
const recentlyGrantedMax = 10_000;

export class Dispatcher {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<DispatchCall, DispatchResult>;
  readonly #probe: AvailabilityProbe;
  readonly #fastPathBackoff = new FastPathBackoff();
  /** Request classes whose last call was granted. Their next call most likely is, too. */
  readonly #recentlyGranted = new Set<string>();

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new Batcher<DispatchCall, DispatchResult>({
      meter: context.metrics.batch('desk'),
      flush: (calls, signal) => this.#flush(calls, signal),
      sizeMax: weightMax,
      weigh,
      weightMax,
      concurrencyMax,
      minWeightWhenBusy,
      waitingMax,
      onIdle: () => this.#recentlyGranted.clear(),
    });
    this.#probe = new AvailabilityProbe(context);
  }

  /**
   * Ends leases. The caller must try releases again whose result is `rowLocked`. Releases that the database
   * could not complete by itself are decided in a second transaction.
   *
   * The caller's batches for locked rows could decide them too. But 100 releases that a client repeats after
   * a disconnect would take 26 transactions, instead of 2 (`test/engine/dispatch/dispatcher.test.ts`).
   */
  async release(
    releases: readonly ReleaseCall[],
    signal: AbortSignal | undefined,
  ): Promise<readonly ReleaseResult[]> {
    const answers = await this.#runReleases(releases, false, signal);
    const open = releases.filter((_, i) => !answers[i]);
    if (open.length === 0) return answers as readonly ReleaseResult[];
    const decided = await this.#releaseDecided(open, open.length < releases.length, signal);
    let next = 0;
    return answers.map((answer) => answer ?? (decided[next++] as ReleaseResult));
  }

  /** If other releases were completed `beside` these, a failure must not discard their answers. */
  async #releaseDecided(
    open: readonly ReleaseCall[],
    beside: boolean,
    signal: AbortSignal | undefined,
  ): Promise<readonly (ReleaseResult | undefined)[]> {
    try {
      return await this.#runReleases(open, true, signal);
    } catch (error) {
      if (!beside || !(error instanceof Error)) throw error;
      const isRefused =
        error instanceof DomainError && (error.code === 'overloaded' || error.code === 'unavailable');
      return open.map(() => (isRefused ? rowLocked : error));
    }
  }

  async #runReleases(
    releases: readonly ReleaseCall[],
    needDecision: boolean,
    signal: AbortSignal | undefined,
  ) {
    return (await this.#batcher.run({ releases, needDecision }, signal)) as readonly (
      | ReleaseResult
      | undefined
    )[];
  }

  /**
   * Tries once to grant the next matching jobs. Otherwise the call is denied with a reason, or has to be
   * repeated at once. Unless work is expected, a probe comes first, which denies most calls.
   */
  async acquire(call: AcquireCall, signal: AbortSignal | undefined): Promise<AcquireResult> {
    const isExpected = call.isExpected || this.#recentlyGranted.has(call.requestClass);
    if (isExpected) return this.#runAcquire(call, signal);
    const precheck = await this.#probe.check(call, signal);
    if (precheck === 'promising') return this.#runAcquire(call, signal);
    return call.requestId === null ? precheck : this.#runAcquire({ ...call, precheck }, signal);
  }

  async #runAcquire(acquire: AcquireCall, signal: AbortSignal | undefined): Promise<AcquireResult> {
    return (await this.#batcher.run({ acquire }, signal)) as AcquireResult;
  }

  /** Calls that wait for the next transaction. */
  get waiting(): number {
    return this.#batcher.waiting;
  }

  async close(): Promise<void> {
    await Promise.all([this.#probe.close(), this.#batcher.close()]);
  }

  async #flush(calls: readonly DispatchCall[], signal: AbortSignal | undefined): Promise<DispatchResult[]> {
    const {
      database,
      settings,
      outageMonitor,
      publisher,
      transport,
      leaseSubscriptions,
      lowWaterMarks,
      quotaBook,
    } = this.#context;
    const { maxClaims } = settings;
    await outageMonitor.ensureFresh();
    const { completions, decidedReleases } = splitReleases(calls, transport);
    const acquires = firstRequestClasses(calls.flatMap((call) => ('acquire' in call ? call.acquire : [])));
    const { completionBatch, releaseBatch, grantBatch } = await database.transaction(async (sql) => {
      const completionBatch = new CompletionBatch(completions);
      const releaseBatch = new ReleaseBatch(decidedReleases, {
        wait: false,
        deferCapacity: true,
        transport,
        maxClaims,
        leaseSubscriptions,
        signal,
      });
      const grantBatch = new GrantBatch(acquires, {
        settings,
        keepsMessages: transport.keepsMessages,
        mayUseFastPath: (requestClass) => this.#fastPathBackoff.mayTry(requestClass),
        lowWaterMarks,
        unitTenants: quotaBook.unitTenantsOf(acquires.map(({ filter }) => filter)),
        signal,
      });
      await grantBatch.replay(sql);
      await releaseBatch.lock(sql);
      const written = releaseBatch.write(sql);
      // Otherwise the statements are sent, and the next ones are pipelined behind them.
      if (!releaseBatch.needsNoRequeue) await written;
      const source = {
        completionBatch,
        grantBatch,
        unitsFreed: releaseBatch.units,
        isLast: releaseBatch.count === 0,
      };
      await Promise.all([written, this.#grant(sql, source, signal)]);
      return { completionBatch, releaseBatch, grantBatch };
    }, signal);
    publisher.publish(completionBatch.effects);
    publisher.publish(releaseBatch.effects);
    if (grantBatch.fastPathMiss !== undefined) this.#fastPathBackoff.noteMiss(grantBatch.fastPathMiss);
    const { answers } = grantBatch;
    await this.#publish(acquires, answers);
    for (const parking of grantBatch.unschedulableScans) await this.#parkUnschedulable(parking);
    if (grantBatch.hasReplays || releaseBatch.hasReplays) await database.awaitStandby(signal);
    const answered = new Map(acquires.map((call, i) => [call, answers[i]]));
    const ended = new Map<ReleaseCall, ReleaseResult | undefined>();
    for (const [i, answer] of completionBatch.answers.entries())
      ended.set(completions[i] as ReleaseCall, answer);
    for (const [i, answer] of releaseBatch.answers.entries())
      ended.set(decidedReleases[i] as ReleaseCall, answer);
    return calls.map((call) =>
      'acquire' in call
        ? (answered.get(call.acquire) ?? again(call.acquire))
        : call.releases.map((one) => ended.get(one)),
    );
  }

  /** Locks the capacity, adds all freed units, and grants from it. */
  async #grant(
    sql: TransactionSql,
    { completionBatch, grantBatch, unitsFreed, isLast }: GrantSource,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (completionBatch.count === 0) return grantBatch.grant(sql, { unitsFreed }, isLast);
    const capacity = { totalUnlessSet: this.#context.settings.capacityTotal, moreUnits: unitsFreed };
    const locked = completionBatch.run(sql, capacity, signal);
    await Promise.all([locked, grantBatch.grant(sql, { locked }, isLast)]);
  }

  /**
   * Records which request classes were granted, and notifies all parts of the server about the new leases.
   */
  async #publish(acquires: readonly AcquireCall[], answers: readonly AcquireResult[]): Promise<void> {
    for (const { requestClass } of acquires) this.#recentlyGranted.delete(requestClass);
    if (this.#recentlyGranted.size >= recentlyGrantedMax) this.#recentlyGranted.clear();
    const granted: Grant[] = [];
    for (const [i, answer] of answers.entries()) {
      if (answer.kind !== 'granted') continue;
      granted.push(...answer.grants);
      this.#recentlyGranted.add((acquires[i] as AcquireCall).requestClass);
    }
    if (granted.length === 0) return;
    this.#context.publisher.publish({
      granted,
      nextDeadlineMs: granted.reduce(
        (ms, grant) => Math.min(ms, grant.heartbeatWithinMs),
        Number.POSITIVE_INFINITY,
      ),
      jobsChanged: granted.map(({ job }) => job.jobId),
    });
    const fromStreams = granted.filter(({ job }) => job.stream !== null);
    if (fromStreams.length > 0) await this.#nameMessages(fromStreams);
  }

  /**
   * Sets the id of each job's message for the worker. The database may not have known the id when it granted
   * the lease.
   */
  async #nameMessages(grants: readonly Grant[]): Promise<void> {
    const names = await this.#context.transport.namesOf(
      grants.map(({ job: { jobId, stream }, lease: { attempt }, messageId }) => ({
        jobId,
        stream: stream as string,
        attempt,
        messageId,
      })),
    );
    for (const [i, grant] of grants.entries()) grant.messageId = names[i] ?? null;
  }

  /**
   * Sets aside jobs that cost more than the total capacity, in transactions of their own. No caller waits for
   * them, and their effect stays if the requester disconnects meanwhile.
   */
  #parkUnschedulable(parking: UnschedulableScan): Promise<void> {
    const { database, settings } = this.#context;
    return database.transaction((sql) => parkUnschedulable(sql, parking, settings.capacityTotal));
  }
}

/**
 * Splits releases into those that the database completes by itself and those that are decided. The first
 * release of a lease counts, so one decided release of a lease makes all of its releases decided.
 */
function splitReleases(
  calls: readonly DispatchCall[],
  transport: EngineContext['transport'],
): Record<'completions' | 'decidedReleases', ReleaseCall[]> {
  const completions: ReleaseCall[] = [];
  const decidedReleases: ReleaseCall[] = [];
  for (const call of calls) {
    if (!('releases' in call)) continue;
    for (const one of call.releases) {
      const isCompletion = !call.needDecision && CompletionBatch.accepts(one, transport);
      (isCompletion ? completions : decidedReleases).push(one);
    }
  }
  if (completions.length === 0 || decidedReleases.length === 0) return { completions, decidedReleases };
  const leaseIds = new Set(decidedReleases.map(({ release }) => release.leaseId));
  const isDecided = ({ release }: ReleaseCall) => leaseIds.has(release.leaseId);
  if (!completions.some(isDecided)) return { completions, decidedReleases };
  const inOrder = calls.flatMap((call) => ('releases' in call ? call.releases : []));
  return {
    completions: completions.filter((one) => !isDecided(one)),
    decidedReleases: inOrder.filter(isDecided),
  };
}

function weigh(call: DispatchCall): number {
  if ('acquire' in call) return Math.min(call.acquire.count, countWeight);
  return call.releases.reduce((sum, { release }) => sum + 1 + release.bytes / bytesPerWeight, 0);
}

/** The calls of the first request classes, as many as one transaction serves. */
function firstRequestClasses(calls: readonly AcquireCall[]): AcquireCall[] {
  const classes = new Set<string>();
  return calls.filter(
    ({ requestClass }) =>
      classes.has(requestClass) || (classes.size < requestClassesMax && classes.add(requestClass)),
  );
}

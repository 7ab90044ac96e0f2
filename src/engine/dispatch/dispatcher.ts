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
 * - A release never waits for a row that another transaction has locked, nor for the number of requests.
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

type DispatchCall = { back: readonly ReleaseCall[]; isJudged: boolean } | { out: AcquireCall };
type DispatchResult = readonly (ReleaseResult | undefined)[] | AcquireResult;

interface GrantSource {
  completions: CompletionBatch;
  given: GrantBatch;
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
    back: readonly ReleaseCall[],
    signal: AbortSignal | undefined,
  ): Promise<readonly ReleaseResult[]> {
    const answers = await this.#runReleases(back, false, signal);
    const open = back.filter((_, i) => !answers[i]);
    if (open.length === 0) return answers as readonly ReleaseResult[];
    const decided = await this.#releaseDecided(open, open.length < back.length, signal);
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

  async #runReleases(back: readonly ReleaseCall[], isJudged: boolean, signal: AbortSignal | undefined) {
    return (await this.#batcher.run({ back, isJudged }, signal)) as readonly (ReleaseResult | undefined)[];
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

  async #runAcquire(out: AcquireCall, signal: AbortSignal | undefined): Promise<AcquireResult> {
    return (await this.#batcher.run({ out }, signal)) as AcquireResult;
  }

  /** Calls that wait for the next transaction. */
  get waiting(): number {
    return this.#batcher.waiting;
  }

  async close(): Promise<void> {
    await Promise.all([this.#probe.close(), this.#batcher.close()]);
  }

  async #flush(calls: readonly DispatchCall[], signal: AbortSignal | undefined): Promise<DispatchResult[]> {
    const { database, settings, outageMonitor, publisher, transport, leaseSubscriptions, lowWaterMarks } =
      this.#context;
    const { maxClaims } = settings;
    await outageMonitor.ensureFresh();
    const { easy, judged } = splitReleases(calls, transport);
    const out = firstRequestClasses(calls.flatMap((call) => ('out' in call ? call.out : [])));
    const { completions, taken, given } = await database.transaction(async (sql) => {
      const completions = new CompletionBatch(easy);
      const taken = new ReleaseBatch(judged, {
        wait: false,
        deferCapacity: true,
        transport,
        maxClaims,
        leaseSubscriptions,
        signal,
      });
      const given = new GrantBatch(out, {
        settings,
        keepsMessages: transport.keepsMessages,
        mayUseFastPath: (kind) => this.#fastPathBackoff.mayTry(kind),
        lowWaterMarks,
        signal,
      });
      await given.replay(sql);
      await taken.lock(sql);
      const written = taken.write(sql);
      // Otherwise the statements are sent, and the next ones are pipelined behind them.
      if (!taken.needsNoRequeue) await written;
      const dealing = { completions, given, unitsFreed: taken.units, isLast: taken.count === 0 };
      await Promise.all([written, this.#grant(sql, dealing, signal)]);
      return { completions, taken, given };
    }, signal);
    publisher.publish(completions.effects);
    publisher.publish(taken.effects);
    if (given.fastPathMiss !== undefined) this.#fastPathBackoff.noteMiss(given.fastPathMiss);
    await this.#publish(out, given.answers);
    for (const parking of given.unschedulableScans) await this.#parkUnschedulable(parking);
    if (given.hasReplays || taken.hasReplays) await database.awaitStandby(signal);
    const { answers } = given;
    const answered = new Map(out.map((call, i) => [call, answers[i]]));
    const ended = new Map<ReleaseCall, ReleaseResult | undefined>();
    for (const [i, answer] of completions.answers.entries()) ended.set(easy[i] as ReleaseCall, answer);
    for (const [i, answer] of taken.answers.entries()) ended.set(judged[i] as ReleaseCall, answer);
    return calls.map((call) =>
      'out' in call ? (answered.get(call.out) ?? again(call.out)) : call.back.map((one) => ended.get(one)),
    );
  }

  /** Locks the capacity, adds all freed units, and grants from it. */
  async #grant(
    sql: TransactionSql,
    { completions, given, unitsFreed, isLast }: GrantSource,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (completions.count === 0) return given.grant(sql, { unitsFreed }, isLast);
    const capacity = { totalUnlessSet: this.#context.settings.capacityTotal, moreUnits: unitsFreed };
    const locked = completions.run(sql, capacity, signal);
    await Promise.all([locked, given.grant(sql, { locked }, isLast)]);
  }

  /**
   * Records which request classes were granted, and notifies all parts of the server about the new leases.
   */
  async #publish(out: readonly AcquireCall[], answers: readonly AcquireResult[]): Promise<void> {
    for (const { requestClass } of out) this.#recentlyGranted.delete(requestClass);
    if (this.#recentlyGranted.size >= recentlyGrantedMax) this.#recentlyGranted.clear();
    const granted: Grant[] = [];
    for (const [i, answer] of answers.entries()) {
      if (answer.kind !== 'granted') continue;
      granted.push(...answer.grants);
      this.#recentlyGranted.add((out[i] as AcquireCall).requestClass);
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
): Record<'easy' | 'judged', ReleaseCall[]> {
  const easy: ReleaseCall[] = [];
  const judged: ReleaseCall[] = [];
  for (const call of calls) {
    if (!('back' in call)) continue;
    for (const one of call.back)
      (!call.isJudged && CompletionBatch.accepts(one, transport) ? easy : judged).push(one);
  }
  if (easy.length === 0 || judged.length === 0) return { easy, judged };
  const leaseIds = new Set(judged.map(({ release }) => release.leaseId));
  const isJudged = ({ release }: ReleaseCall) => leaseIds.has(release.leaseId);
  if (!easy.some(isJudged)) return { easy, judged };
  const inOrder = calls.flatMap((call) => ('back' in call ? call.back : []));
  return { easy: easy.filter((one) => !isJudged(one)), judged: inOrder.filter(isJudged) };
}

function weigh(call: DispatchCall): number {
  if ('out' in call) return Math.min(call.out.count, countWeight);
  return call.back.reduce((sum, { release }) => sum + 1 + release.bytes / bytesPerWeight, 0);
}

/** The calls of the first request classes, as many as one transaction serves. */
function firstRequestClasses(calls: readonly AcquireCall[]): AcquireCall[] {
  const kinds = new Set<string>();
  return calls.filter(
    ({ requestClass }) =>
      kinds.has(requestClass) || (kinds.size < requestClassesMax && kinds.add(requestClass)),
  );
}

/**
 * Where leases are given out and taken back.
 *
 * Everything that does either has to lock the one row of the capacity until the disk has its commit, so two transactions
 * beside each other would mostly wait for one another. Releases and claims that arrive while a transaction is under way
 * therefore leave together in the next one: what is given back first, and from that what is given out. Only many leave
 * beside it, who get as far as the capacity while the other waits for the disk.
 *
 * Promises: a release is never held up by a row that somebody else has, and never by the number of claims; where claims
 * are of more kinds than one transaction serves, or want more than it may hold, what is left over asks again behind those
 * who have come meanwhile. What was committed is told to everybody it concerns before its callers have their answers.
 * `close` lets what is under way finish.
 */
import { DomainError } from '../../domain/errors.ts';
import type { Grant } from '../../domain/leases/lease.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import type { TransactionSql } from '../../store/connection/sql.ts';
import { type EngineContext, waitingMax } from '../context/engine-context.ts';
import { CompletionBatch } from './completion-batch.ts';
import { FastPathBackoff } from './fast-path-backoff.ts';
import { type AcquireCall, type Answer, GrantBatch, type UnschedulableScan } from './grant-batch.ts';
import { parkUnschedulable } from './park-unschedulable.ts';
import { ReleaseBatch, type ReleaseCall, type ReleaseResult } from './release-batch.ts';

type DispatchCall = { back: readonly ReleaseCall[]; isJudged: boolean } | { out: AcquireCall };
type DispatchResult = readonly (ReleaseResult | undefined)[] | Answer | 'again';

interface GrantSource {
  completions: CompletionBatch;
  given: GrantBatch;
  /** Units that came free before. */
  unitsFreed: number;
  /** Nothing has to be asked afterwards, so that the commit may be sent behind what is asked. */
  isLast: boolean;
}

/** What one transaction may weigh: so many claims and releases of some 16 KiB, which keeps it below some 4 MB. */
const weightMax = 500;
const bytesPerWeight = 16_384;
/**
 * However many jobs a claim asks for, it weighs no more than this: claims of many share what there is, and the fewer of
 * them leave together the less do the others get.
 */
const countWeight = 25;
/** While one transaction waits for the disk, what comes back is written by another; so many calls are worth one. */
const concurrencyMax = 2;
const minWeightWhenBusy = 40;
/** Each kind is a look at the queue while nobody else can have the capacity. */
const requestClassesMax = 8;
/** Kinds that are remembered to have got something, while there is always somebody at the desk. */
const recentlyGrantedMax = 10_000;

export class Dispatcher {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<DispatchCall, DispatchResult>;
  readonly #fastPathBackoff = new FastPathBackoff();
  /** Kinds that got something the last time: the next time they will, too, most likely. */
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
  }

  /**
   * Ends leases. Those that are `held` have to be waited for elsewhere. Most end without being looked at by anybody but the
   * database; those that do not are judged, a transaction later.
   */
  async release(
    back: readonly ReleaseCall[],
    signal: AbortSignal | undefined,
  ): Promise<readonly ReleaseResult[]> {
    const easy = this.#completionsOf(back);
    const completed = easy.length > 0 ? await this.#runReleases(easy, false, signal) : [];
    const answers = new Map(easy.map((call, i) => [call, completed[i]]));
    const open = back.filter((call) => !answers.get(call));
    if (open.length === 0) return completed as readonly ReleaseResult[];
    const judged = await this.#releaseDecided(open, open.length < back.length, signal);
    for (const [i, call] of open.entries()) answers.set(call, judged[i]);
    return back.map((call) => answers.get(call) as ReleaseResult);
  }

  /** Where others have been completed `beside` them, those have their answers, whatever becomes of these. */
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
      return open.map(() => (isRefused ? 'held' : error));
    }
  }

  /** Where one release of a lease is judged, all of them are, because it is the first that counts. */
  #completionsOf(back: readonly ReleaseCall[]): readonly ReleaseCall[] {
    const { transport } = this.#context;
    const isEasy = (call: ReleaseCall) => CompletionBatch.accepts(call, transport);
    const easy = back.filter(isEasy);
    if (easy.length === 0 || easy.length === back.length) return easy;
    const judged = new Set(back.flatMap((call) => (isEasy(call) ? [] : call.release.leaseId)));
    return easy.filter(({ release }) => !judged.has(release.leaseId));
  }

  async #runReleases(back: readonly ReleaseCall[], isJudged: boolean, signal: AbortSignal | undefined) {
    return (await this.#batcher.run({ back, isJudged }, signal)) as readonly (ReleaseResult | undefined)[];
  }

  /** Gives the next jobs that suit with their leases, or says why there is none. */
  async acquire(out: AcquireCall, signal: AbortSignal | undefined): Promise<Answer> {
    for (;;) {
      const answer = (await this.#batcher.run({ out }, signal)) as Answer | 'again';
      if (answer !== 'again') return answer;
    }
  }

  /** Calls that wait for the next transaction. */
  get waiting(): number {
    return this.#batcher.waiting;
  }

  /** Whether there is most likely something of a kind to be had, so that nobody has to look before. */
  likelyHasWork(kind: string): boolean {
    return this.#recentlyGranted.has(kind);
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #flush(calls: readonly DispatchCall[], signal: AbortSignal | undefined): Promise<DispatchResult[]> {
    const { database, settings, outageMonitor, transport, leaseSubscriptions, lowWaterMarks } = this.#context;
    const { maxClaims } = settings;
    await outageMonitor.ensureFresh();
    const { easy, judged } = splitReleases(calls);
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
      // Otherwise it is sent, and what follows is sent behind it.
      if (!taken.needsNoRequeue) await written;
      const dealing = { completions, given, unitsFreed: taken.units, isLast: taken.count === 0 };
      await Promise.all([written, this.#grant(sql, dealing, signal)]);
      return { completions, taken, given };
    }, signal);
    completions.publish(this.#context);
    taken.publish(this.#context);
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
      'out' in call ? (answered.get(call.out) ?? 'again') : call.back.map((one) => ended.get(one)),
    );
  }

  /** Locks the capacity, with all that comes free, and gives from it. */
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

  /** Remembers which kinds got something, and tells everybody of the leases that were given. */
  async #publish(out: readonly AcquireCall[], answers: readonly (Answer | undefined)[]): Promise<void> {
    const { reaper, notifier, metrics } = this.#context;
    for (const { requestClass } of out) this.#recentlyGranted.delete(requestClass);
    if (this.#recentlyGranted.size >= recentlyGrantedMax) this.#recentlyGranted.clear();
    const granted: Grant[] = [];
    for (const [i, answer] of answers.entries()) {
      if (answer?.kind !== 'granted') continue;
      granted.push(...answer.grants);
      this.#recentlyGranted.add((out[i] as AcquireCall).requestClass);
    }
    if (granted.length === 0) return;
    // The same request twice has the same grant.
    for (const { waitMs = null } of new Set(granted)) metrics.jobs.granted(waitMs);
    reaper.expectIn(
      granted.reduce((ms, grant) => Math.min(ms, grant.heartbeatWithinMs), Number.POSITIVE_INFINITY),
    );
    notifier.publishJobs(granted.map(({ job }) => job.jobId));
    const fromStreams = granted.filter(({ job }) => job.stream !== null);
    if (fromStreams.length > 0) await this.#nameMessages(fromStreams);
  }

  /** A worker is told the name of its job's message, which may not have been known to the database yet. */
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
   * Puts jobs aside that cost more than all there is, in transactions of their own: nobody waits for those, and what
   * they have done stays done where the asker goes away meanwhile.
   */
  #parkUnschedulable(parking: UnschedulableScan): Promise<void> {
    const { database, settings, lowWaterMarks } = this.#context;
    return database.transaction((sql) =>
      parkUnschedulable(sql, { ...parking, lowWaterMarks }, settings.capacityTotal),
    );
  }
}

/** Releases that the database can end by itself, and those that are judged: among them all of a lease of which one is. */
function splitReleases(calls: readonly DispatchCall[]): Record<'easy' | 'judged', ReleaseCall[]> {
  const leaseIds = new Set<string>();
  for (const call of calls) {
    if ('back' in call && call.isJudged) for (const { release } of call.back) leaseIds.add(release.leaseId);
  }
  const ends: Record<'easy' | 'judged', ReleaseCall[]> = { easy: [], judged: [] };
  for (const call of calls) {
    if (!('back' in call)) continue;
    for (const one of call.back)
      ends[call.isJudged || leaseIds.has(one.release.leaseId) ? 'judged' : 'easy'].push(one);
  }
  return ends;
}

function weigh(call: DispatchCall): number {
  if ('out' in call) return Math.min(call.out.count, countWeight);
  return call.back.reduce((sum, { release }) => sum + 1 + release.bytes / bytesPerWeight, 0);
}

/** The calls of the first kinds, as many as one transaction serves. */
function firstRequestClasses(calls: readonly AcquireCall[]): AcquireCall[] {
  const kinds = new Set<string>();
  return calls.filter(
    ({ requestClass }) =>
      kinds.has(requestClass) || (kinds.size < requestClassesMax && kinds.add(requestClass)),
  );
}

/**
 * The heartbeats of one stream between reading and answering, and the verdicts that the server pushes to it.
 * - Purpose: passes heartbeats of leases and owners to the engine, and sends their verdicts. It also sends
 *   verdicts on leases that were last renewed on the stream: see `LeaseSubscriptions`, `PushedVerdicts`.
 * - Guarantees: each heartbeat is answered by one verdict, after its commit. If another transaction has
 *   locked the row, the verdict follows the lock's release; it is omitted if the database's lock timeout
 *   passes first. Such a heartbeat delays no other.
 * - Batching: no timer delays a heartbeat. Heartbeats read in one turn of the event loop go to the engine
 *   together, and verdicts ready in one turn leave together. While the maximum of calls or a frame is in
 *   flight, the next ones gather.
 * - Backpressure: the weight between reading and answering is bounded by `room`, for leases and owners
 *   together. Pushed verdicts are looked up only while there is room.
 * - Lifecycle: the session owns the state, and closes the exchange.
 * - Failure modes: an outage of the database is answered with `unavailable`, because clients of ended streams
 *   would all reconnect at once. Calls to an overloaded engine are repeated for ten seconds. Any other
 *   failure is reported to the session: the client must know that its heartbeats were not recorded.
 */
import type { StreamEnd } from '../../domain/explain/facts.ts';
import type { OwnerVerdict } from '../../domain/files/file-lease.ts';
import type { Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { isOutage } from '../../engine/context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../../engine/context/overload.ts';
import type { Engine } from '../../engine/engine.ts';
import type { LeaseListener, Subscription } from '../../engine/leases/lease-subscriptions.ts';
import { EngineCalls } from './engine-calls.ts';
import type { FrameSlice, Named, NamedHeartbeat, NamedOwner } from './frames.ts';
import { encodeOwnerVerdicts, OwnerVerdictOutbox } from './owner-verdict-outbox.ts';
import { type Lookups, PushedVerdicts } from './pushed-verdicts.ts';
import { answersLateFailures, pushesVerdicts, repeatsCalls, type StreamState } from './states.ts';
import { encodeVerdicts, unanswered, VerdictOutbox } from './verdict-outbox.ts';

/** How long calls to an overloaded engine are repeated. */
const overloadedMs = 10_000;

/** What an exchange needs of the engine. */
export interface ExchangeEngine {
  leases: Pick<Engine['leases'], 'heartbeatEach' | 'verdictsOf' | 'subscribe'>;
  files: Pick<Engine['files'], 'heartbeatEach'>;
  readonly draining: boolean;
}

/** The session of the stream. */
export interface ExchangeHost {
  readonly state: StreamState;
  send(frame: Buffer, onSent: () => void): void;
  /** An answer is ready or has left, or a call has ended: the session decides what to do next. */
  advance(): void;
  /** Does some work; an error that it throws ends the stream. */
  safely(work: () => void): void;
  onHeartbeatsFailed(error: unknown): void;
  onServerStops(): void;
}

export interface ExchangeOptions {
  engine: ExchangeEngine;
  host: ExchangeHost;
  signal: AbortSignal | undefined;
  looks: Lookups;
}

/** The two ways to treat heartbeats that the engine could not process. */
interface UnavailableAnswers {
  putBack(): void;
  answer(): void;
}

export class HeartbeatExchange implements LeaseListener {
  readonly #engine: ExchangeEngine;
  readonly #host: ExchangeHost;
  readonly #subscription: Subscription;
  readonly #heartbeats: EngineCalls<NamedHeartbeat, Verdict>;
  readonly #owners: EngineCalls<NamedOwner, OwnerVerdict>;
  readonly #answers = new VerdictOutbox();
  readonly #ownerAnswers = new OwnerVerdictOutbox();
  readonly #pushed: PushedVerdicts;

  /** Weight of all heartbeats that have been read and whose answers have not left. */
  #weight = 0;
  #callScheduled = false;
  #sendScheduled = false;
  #sending = false;
  /** Leases and owners take turns if both have answers. */
  #ownersAreNext = false;
  #pauseTimer: NodeJS.Timeout | undefined;
  #overloadedAtMs: number | undefined;
  /** The connection is about to end. */
  #isLeaving = false;

  constructor({ engine, host, signal, looks }: ExchangeOptions) {
    this.#engine = engine;
    this.#host = host;
    const onDone = () => host.advance();
    this.#heartbeats = new EngineCalls<NamedHeartbeat, Verdict>({
      heartbeatEach: (heartbeats) => engine.leases.heartbeatEach(heartbeats, signal),
      onSettled: (heartbeats, verdicts) => {
        if (this.#isClosed) return;
        this.#overloadedAtMs = undefined;
        this.#subscription.onHeartbeat(heartbeats, verdicts);
        this.#answers.add(heartbeats, verdicts);
      },
      onMissed: (heartbeats, error) => this.#answerUnavailable(error, this.#unansweredLeases(heartbeats)),
      onLateMissed: (heartbeat, error) =>
        this.#answerUnavailableLate(heartbeat, error, this.#unansweredLeases([heartbeat])),
      onDone,
    });
    this.#owners = new EngineCalls<NamedOwner, OwnerVerdict>({
      heartbeatEach: (owners) => engine.files.heartbeatEach(owners, signal),
      onSettled: (owners, verdicts) => {
        if (this.#isClosed) return;
        this.#overloadedAtMs = undefined;
        this.#ownerAnswers.add(owners, verdicts);
      },
      onMissed: (owners, error) => this.#answerUnavailable(error, this.#unansweredOwners(owners)),
      onLateMissed: (owner, error) =>
        this.#answerUnavailableLate(owner, error, this.#unansweredOwners([owner])),
      onDone,
    });
    this.#pushed = new PushedVerdicts({
      looks,
      signal,
      onFound: (leaseIds, verdicts) => this.#addPushed(leaseIds, verdicts),
      onLooked: onDone,
    });
    this.#subscription = engine.leases.subscribe(this);
  }

  /** The weight that may still be read. */
  get room(): number {
    return limits.streamHeartbeats - this.#weight;
  }

  /** Every heartbeat is answered, and every answer has left. */
  get isAnswered(): boolean {
    if (!this.#heartbeats.isIdle || !this.#owners.isIdle || this.#sending) return false;
    return this.#answers.isEmpty && this.#ownerAnswers.isEmpty;
  }

  /** No lease waits to be looked up. */
  get hasPushedAll(): boolean {
    return this.#pushed.isIdle;
  }

  /** Accepts the heartbeats and owners of a slice, which have this weight together. */
  take(slice: FrameSlice, weight: number): void {
    this.#weight += weight;
    if (slice.heartbeats.length > 0) this.#heartbeats.gather(slice.heartbeats);
    this.#answers.add(slice.refused, slice.refusals);
    if (slice.owners.length > 0) this.#owners.gather(slice.owners);
    if (slice.refusedOwners.length > 0) this.#ownerAnswers.add(slice.refusedOwners, slice.ownerRefusals);
  }

  answerEmptyFrame(): void {
    this.#answers.addEmptyFrame();
    this.#weight++;
  }

  /** Subscribes to leases that were granted on this stream: they may change before their first heartbeat. */
  follow(leases: readonly { leaseId: string }[], verdicts: readonly Verdict[]): void {
    this.#subscription.onHeartbeat(leases, verdicts);
  }

  /** Unsubscribes from leases that have ended. */
  forget(leaseIds: readonly string[]): void {
    this.#subscription.unsubscribe(leaseIds);
  }

  /** Schedules whatever is ready: a call to the engine, a frame, a lookup. */
  advance(): void {
    this.#scheduleCall();
    this.#scheduleSend();
    if (this.room > 0 && pushesVerdicts(this.#host.state)) this.#pushed.scheduleLookup();
  }

  /** Drops the heartbeats that no call to the engine contains. */
  drop(): void {
    this.#heartbeats.clear();
    this.#owners.clear();
  }

  close(how: StreamEnd): void {
    this.#subscription.close(how);
    clearTimeout(this.#pauseTimer);
    this.drop();
    this.#answers.clear();
    this.#ownerAnswers.clear();
    this.#pushed.clear();
  }

  /** Sends `drain` with each further verdict. */
  leave(): void {
    this.#isLeaving = true;
  }

  onLeasesChanged(leaseIds: readonly string[]): void {
    if (this.#isClosed) return;
    this.#pushed.add(leaseIds);
    this.#host.advance();
  }

  onDrained(): void {
    if (!this.#isClosed) this.#host.onServerStops();
  }

  get #drain(): boolean {
    return this.#isLeaving || this.#engine.draining;
  }

  get #isClosed(): boolean {
    return this.#host.state === 'Closed';
  }

  /** Passes on the heartbeats that are read in one turn of the event loop together at its end. */
  #scheduleCall(): void {
    if (this.#callScheduled || this.#pauseTimer) return;
    if (!this.#heartbeats.mayFlush && !this.#owners.mayFlush) return;
    this.#callScheduled = true;
    setImmediate(() => {
      this.#callScheduled = false;
      if (this.#isClosed || this.#pauseTimer) return;
      this.#heartbeats.flush();
      this.#owners.flush();
    });
  }

  #unansweredLeases(heartbeats: readonly NamedHeartbeat[]): UnavailableAnswers {
    return {
      putBack: () => this.#heartbeats.putBack(heartbeats),
      answer: () =>
        this.#answers.add(
          heartbeats,
          heartbeats.map(() => unanswered),
        ),
    };
  }

  #unansweredOwners(owners: readonly NamedOwner[]): UnavailableAnswers {
    return {
      putBack: () => this.#owners.putBack(owners),
      answer: () =>
        this.#ownerAnswers.add(
          owners,
          owners.map(() => unanswered),
        ),
    };
  }

  #answerUnavailableLate({ weight }: Named, error: unknown, missed: UnavailableAnswers): void {
    if (answersLateFailures(this.#host.state)) this.#answerUnavailable(error, missed);
    else this.#weight -= weight;
  }

  #answerUnavailable(error: unknown, missed: UnavailableAnswers): void {
    if (this.#isClosed) return;
    if (this.#mayRepeat(error)) {
      missed.putBack();
      this.#pause();
    } else if (isOutage(error)) missed.answer();
    else this.#host.onHeartbeatsFailed(error);
  }

  #mayRepeat(error: unknown): boolean {
    if (!isOverload(error) || !repeatsCalls(this.#host.state)) return false;
    this.#overloadedAtMs ??= performance.now();
    return performance.now() - this.#overloadedAtMs < overloadedMs;
  }

  #pause(): void {
    this.#pauseTimer ??= setTimeout(() => {
      this.#pauseTimer = undefined;
      this.#host.advance();
    }, overloadPauseMs());
  }

  /** Verdicts of one turn leave together: calls of one batch are answered one after the other. */
  #scheduleSend(): void {
    if (this.#sendScheduled || this.#sending) return;
    if (this.#answers.isEmpty && this.#ownerAnswers.isEmpty) return;
    this.#sendScheduled = true;
    queueMicrotask(() => {
      this.#sendScheduled = false;
      this.#host.safely(() => this.#send());
    });
  }

  #send(): void {
    const areOwners = !this.#ownerAnswers.isEmpty && (this.#ownersAreNext || this.#answers.isEmpty);
    this.#ownersAreNext = !areOwners;
    if (areOwners) this.#sendOwners();
    else this.#sendLeases();
  }

  #sendLeases(): void {
    const { leases, verdicts } = this.#answers.next();
    let weight = leases.length === 0 ? 1 : 0;
    for (const lease of leases) weight += lease.weight;
    this.#sendFrame(encodeVerdicts(leases, verdicts, this.#drain), weight);
  }

  #sendOwners(): void {
    const answers = this.#ownerAnswers.next();
    const weight = answers.reduce((sum, { owner }) => sum + owner.weight, 0);
    this.#sendFrame(encodeOwnerVerdicts(answers, this.#drain), weight);
  }

  #sendFrame(frame: Buffer, weight: number): void {
    this.#sending = true;
    this.#host.send(frame, () => {
      this.#sending = false;
      this.#weight -= weight;
      this.#host.advance();
    });
  }

  #addPushed(leaseIds: readonly string[], verdicts: readonly Verdict[]): void {
    if (this.#isClosed) return;
    this.#subscription.unsubscribe(leaseIds.filter((_, i) => verdicts[i]?.kind === 'lost'));
    this.#weight += leaseIds.length;
    this.#answers.add(
      leaseIds.map((named) => ({ named, weight: 1 })),
      verdicts,
    );
  }
}

/**
 * LeasesService.StreamHeartbeats: the session of one stream.
 * - Purpose: answers heartbeats for leases of jobs and, in frames of their own, for owners of file leases. It
 *   also pushes verdicts on leases that were last renewed here: see `LeaseSubscriptions`, `PushedVerdicts`.
 * - Guarantees: each heartbeat is answered by one verdict, after its commit. An invalid one gets a verdict
 *   and never ends the stream. If another transaction has locked the row, the verdict follows the lock's
 *   release; it is omitted if the database's lock timeout passes first. Such a heartbeat delays no other.
 * - Batching: no timer delays a heartbeat. Heartbeats read in one turn of the event loop go to the engine
 *   together, and verdicts ready in one turn leave together. While the maximum of calls or a frame is in
 *   flight, the next ones gather.
 * - Backpressure: the weight between reading and answering is bounded, for leases and owners together. At the
 *   bound the session reads nothing more, whether database or client is slow, and HTTP/2 passes that on to
 *   the client. A frame larger than the bound is read in slices. Pushed verdicts are looked up only while the
 *   client keeps up.
 * - Lifecycle: if the client ends its side, heartbeats in flight are answered first. If a frame cannot be
 *   read, the frames before it are answered, then the stream ends with that error. Before the server stops,
 *   each lease gets a verdict with `drain` as far as time allows, and the session reads nothing more. A
 *   disconnect ends everything at once. No end of a stream releases a lease.
 * - Failure modes: an outage of the database is answered with `unavailable`, because clients of ended streams
 *   would all reconnect at once. Calls to an overloaded engine are retried. If the server itself fails, ready
 *   verdicts leave and the stream ends with the error: the client must know that its heartbeats were not
 *   recorded.
 */
import type { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import type { StreamEnd } from '../../domain/explain/facts.ts';
import type { OwnerVerdict } from '../../domain/files/file-lease.ts';
import type { Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { isOutage } from '../../engine/context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../../engine/context/overload.ts';
import type { Engine } from '../../engine/engine.ts';
import type { LeaseListener, Subscription } from '../../engine/leases/lease-subscriptions.ts';
import type { WorkerStream } from '../../engine/workers/known-workers.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { FrameSession, FrameStream, Implementation } from '../implementation.ts';
import { EngineCalls, heartbeatsPerCall } from './engine-calls.ts';
import { HeartbeatFrame, type Named, type NamedHeartbeat, type NamedOwner, WorkerName } from './frames.ts';
import { encodeOwnerVerdicts, OwnerVerdictOutbox } from './owner-verdict-outbox.ts';
import { createLookups, type Lookups, PushedVerdicts } from './pushed-verdicts.ts';
import { encodeVerdicts, unanswered, VerdictOutbox } from './verdict-outbox.ts';

/** How long the session retries calls to an overloaded engine. */
const overloadedMs = 10_000;
/** How long a stream may send verdicts with `drain` before it ends. */
const drainMs = 1_500;

/** What a session needs of the engine. */
export interface HeartbeatEngine {
  leases: Pick<Engine['leases'], 'heartbeatEach' | 'verdictsOf' | 'subscribe'>;
  files: Pick<Engine['files'], 'heartbeatEach'>;
  workers: Pick<Engine['workers'], 'open'>;
  readonly draining: boolean;
}

/** LeasesService.StreamHeartbeats, to be spread into the rest of the service. */
export function streamHeartbeats(
  engine: HeartbeatEngine,
  metrics?: Metrics,
): Pick<Implementation<typeof LeasesService>, 'streamHeartbeats'> {
  const looks = createLookups(engine.leases, metrics);
  return {
    streamHeartbeats: (stream, { peer, signal }) => {
      const listed = engine.workers.open('HEARTBEAT_STREAM', peer, asksForNothing);
      return new HeartbeatStream({ engine, stream, signal, looks, listed });
    },
  };
}

const asksForNothing = () => [];

/** The two ways to treat heartbeats that the engine could not process. */
interface UnavailableAnswers {
  putBack(): void;
  answer(): void;
}

export interface HeartbeatOptions {
  engine: Pick<HeartbeatEngine, 'leases' | 'files' | 'draining'>;
  stream: FrameStream;
  signal: AbortSignal | undefined;
  looks: Lookups;
  /** The stream's entry in the list of workers' streams. Work streams list themselves. */
  listed?: WorkerStream;
}

export class HeartbeatStream implements FrameSession, LeaseListener {
  readonly #stream: FrameStream;
  readonly #engine: HeartbeatOptions['engine'];
  readonly #subscription: Subscription;
  readonly #listed: WorkerStream | undefined;
  readonly #worker = new WorkerName();
  readonly #beats: EngineCalls<NamedHeartbeat, Verdict>;
  readonly #owners: EngineCalls<NamedOwner, OwnerVerdict>;
  readonly #answers = new VerdictOutbox();
  readonly #ownerAnswers = new OwnerVerdictOutbox();
  readonly #pushed: PushedVerdicts;

  /** The frame that is being read in slices. */
  #frame: HeartbeatFrame | undefined;
  /** Weight of all heartbeats that have been read and whose answers have not left. */
  #weight = 0;
  #callRunning = true;
  #callScheduled = false;
  #sendScheduled = false;
  #sending = false;
  /** Leases and owners take turns if both have answers. */
  #ownersAreNext = false;

  #clientEnded = false;
  /** The final error of the stream, and whether heartbeats that were read are answered first. */
  #failure: { error: unknown; answersRest: boolean } | undefined;
  #drain: 'no' | 'telling' | 'told' = 'no';
  #closed = false;
  #drainTimer: NodeJS.Timeout | undefined;
  #pauseTimer: NodeJS.Timeout | undefined;
  #overloadedAtMs: number | undefined;

  constructor({ stream, signal, engine, looks, listed }: HeartbeatOptions) {
    this.#stream = stream;
    this.#listed = listed;
    this.#engine = engine;
    const onDone = () => this.#advance();
    this.#beats = new EngineCalls<NamedHeartbeat, Verdict>({
      heartbeatEach: (beats) => engine.leases.heartbeatEach(beats, signal),
      onSettled: (beats, verdicts) => {
        if (this.#closed) return;
        this.#overloadedAtMs = undefined;
        this.#subscription.onHeartbeat(beats, verdicts);
        this.#answers.add(beats, verdicts);
      },
      onMissed: (beats, error) => this.#answerUnavailable(error, this.#unansweredBeats(beats)),
      onLateMissed: (beat, error) => this.#answerUnavailableLate(beat, error, this.#unansweredBeats([beat])),
      onDone,
    });
    this.#owners = new EngineCalls<NamedOwner, OwnerVerdict>({
      heartbeatEach: (owners) =>
        engine.files.heartbeatEach(
          owners.map(({ ownerId }) => ownerId),
          signal,
        ),
      onSettled: (owners, verdicts) => {
        if (this.#closed) return;
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
      onLooked: () => this.#advance(),
    });
    this.#subscription = engine.leases.subscribe(this);
  }

  /** `workerId` is the worker of heartbeats that contain no worker id. */
  onFrame(frame: Buffer, workerId?: string): void {
    this.#callRunning = false;
    if (this.#failure) return;
    this.#frame = new HeartbeatFrame(frame, this.#worker, workerId);
    this.#advance();
  }

  /** Subscribes to leases that were granted on this stream: they may change before their first heartbeat. */
  follow(leases: readonly { leaseId: string }[], verdicts: readonly Verdict[]): void {
    this.#subscription.onHeartbeat(leases, verdicts);
  }

  /** Unsubscribes from leases that have ended. */
  forget(leaseIds: readonly string[]): void {
    this.#subscription.unsubscribe(leaseIds);
  }

  onEnd(): void {
    this.#clientEnded = true;
    this.#advance();
  }

  onGone(): void {
    this.#close('gone');
  }

  onLeasesChanged(leaseIds: readonly string[]): void {
    if (this.#closed) return;
    this.#pushed.add(leaseIds);
    this.#advance();
  }

  onDrained(): void {
    if (this.#closed || this.#drain !== 'no') return;
    this.#drain = 'telling';
    this.#drainTimer = setTimeout(() => {
      this.#drain = 'told';
      this.#advance();
    }, drainMs);
    // A stream that is notified while it is being opened has nothing to send yet.
    queueMicrotask(() => this.#advance());
  }

  #advance(): void {
    this.#safely(() => {
      this.#readFrame();
      this.#scheduleCall();
      this.#scheduleSend();
      this.#scheduleLookup();
      this.#readOn();
      this.#endIfDone();
    });
  }

  /** A programming error ends this stream, and nothing else. */
  #safely(work: () => void): void {
    if (this.#closed) return;
    try {
      work();
    } catch (error) {
      this.#close('failed');
      this.#stream.end(error);
    }
  }

  get #hasRoom(): boolean {
    return this.#weight < limits.streamHeartbeats;
  }

  #readFrame(): void {
    while (this.#frame && this.#hasRoom) {
      const frame = this.#frame;
      try {
        const piece = frame.next(Math.min(heartbeatsPerCall, limits.streamHeartbeats - this.#weight));
        this.#weight += piece.weight;
        this.#beats.gather(piece.heartbeats);
        const speaker = piece.heartbeats[0]?.workerId;
        if (speaker !== undefined) this.#listed?.heard(speaker);
        this.#answers.add(piece.refused, piece.refusals);
        if (piece.owners.length > 0) this.#owners.gather(piece.owners);
        if (piece.refusedOwners.length > 0) this.#ownerAnswers.add(piece.refusedOwners, piece.ownerRefusals);
      } catch (error) {
        this.#failure ??= { error, answersRest: true };
        this.#frame = undefined;
        return;
      }
      if (!frame.done) continue;
      this.#frame = undefined;
      if (frame.heartbeats > 0 || frame.owners > 0) continue;
      this.#answers.addEmptyFrame();
      this.#weight++;
    }
  }

  #readOn(): void {
    if (this.#callRunning || this.#frame || !this.#hasRoom) return;
    if (this.#clientEnded || this.#failure || this.#drain !== 'no') return;
    this.#callRunning = true;
    this.#stream.read();
  }

  /** Sends the heartbeats that are read in one turn of the event loop together at its end. */
  #scheduleCall(): void {
    if (this.#callScheduled || this.#pauseTimer) return;
    if (!this.#beats.mayFlush && !this.#owners.mayFlush) return;
    this.#callScheduled = true;
    setImmediate(() => {
      this.#callScheduled = false;
      if (this.#closed || this.#pauseTimer) return;
      this.#beats.flush();
      this.#owners.flush();
    });
  }

  #unansweredBeats(beats: readonly NamedHeartbeat[]): UnavailableAnswers {
    return {
      putBack: () => this.#beats.putBack(beats),
      answer: () =>
        this.#answers.add(
          beats,
          beats.map(() => unanswered),
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
    // The next heartbeat retries. The client needs an answer only if it will send no further heartbeat.
    if (this.#clientEnded) this.#answerUnavailable(error, missed);
    else this.#weight -= weight;
  }

  #answerUnavailable(error: unknown, missed: UnavailableAnswers): void {
    if (this.#closed) return;
    if (this.#mayRetry(error)) {
      missed.putBack();
      this.#pause();
    } else if (isOutage(error)) missed.answer();
    else this.#fail(error);
  }

  #fail(error: unknown): void {
    if (this.#closed) return;
    this.#failure = { error: this.#failure?.error ?? error, answersRest: false };
    this.#frame = undefined;
    this.#beats.clear();
    this.#owners.clear();
  }

  #mayRetry(error: unknown): boolean {
    if (!isOverload(error)) return false;
    if (this.#failure && !this.#failure.answersRest) return false;
    this.#overloadedAtMs ??= performance.now();
    return performance.now() - this.#overloadedAtMs < overloadedMs;
  }

  #pause(): void {
    this.#pauseTimer ??= setTimeout(() => {
      this.#pauseTimer = undefined;
      this.#advance();
    }, overloadPauseMs());
  }

  /** Verdicts of one turn leave together: calls of one batch are answered one after the other. */
  #scheduleSend(): void {
    if (this.#sendScheduled || this.#sending) return;
    if (this.#answers.isEmpty && this.#ownerAnswers.isEmpty) return;
    this.#sendScheduled = true;
    queueMicrotask(() => {
      this.#sendScheduled = false;
      this.#safely(() => this.#send());
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
    this.#sendFrame(encodeVerdicts(leases, verdicts, this.#engine.draining), weight);
  }

  #sendOwners(): void {
    const answers = this.#ownerAnswers.next();
    const weight = answers.reduce((sum, { owner }) => sum + owner.weight, 0);
    this.#sendFrame(encodeOwnerVerdicts(answers, this.#engine.draining), weight);
  }

  #sendFrame(frame: Buffer, weight: number): void {
    this.#sending = true;
    this.#stream.send(frame, () => {
      this.#sending = false;
      this.#weight -= weight;
      this.#advance();
    });
  }

  #scheduleLookup(): void {
    if (!this.#hasRoom || this.#clientEnded || this.#failure || this.#drain === 'told') return;
    this.#pushed.scheduleLookup();
  }

  #addPushed(leaseIds: readonly string[], verdicts: readonly Verdict[]): void {
    if (this.#closed) return;
    this.#subscription.unsubscribe(leaseIds.filter((_, i) => verdicts[i]?.kind === 'lost'));
    this.#weight += leaseIds.length;
    this.#answers.add(
      leaseIds.map((named) => ({ named, weight: 1 })),
      verdicts,
    );
  }

  #endIfDone(): void {
    if (this.#frame || !this.#beats.isIdle || !this.#owners.isIdle) return;
    if (!this.#answers.isEmpty || !this.#ownerAnswers.isEmpty || this.#sending) return;
    const isTold = this.#drain === 'told' || (this.#drain === 'telling' && this.#pushed.isIdle);
    if (!this.#failure && !this.#clientEnded && !isTold) return;
    this.#close(this.#failure ? 'failed' : this.#clientEnded ? 'ended' : 'drained');
    this.#stream.end(this.#failure?.error);
  }

  #close(how: StreamEnd): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#listed?.close();
    this.#subscription.close(how);
    clearTimeout(this.#drainTimer);
    clearTimeout(this.#pauseTimer);
    this.#frame = undefined;
    this.#beats.clear();
    this.#owners.clear();
    this.#answers.clear();
    this.#ownerAnswers.clear();
    this.#pushed.clear();
  }
}

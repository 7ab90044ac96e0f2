/**
 * LeasesService.StreamHeartbeats: one stream's session.
 *
 * Promises: every heartbeat is answered by one verdict, after the commit that made it true; a heartbeat that is wrong
 * is a verdict, too, and never ends the stream. One whose row somebody has locked is answered when that is over, and
 * not at all where it takes longer than the database waits; it holds up no other. Nothing waits for company by a
 * timer: what is read in one turn of the event loop goes to the engine together, what becomes ready in one turn goes
 * out together, and while as many calls or a frame are under way as may be, the next gather behind them. Between being
 * read and being answered there is a bounded weight of heartbeats; at the bound nothing more is read, whether it is
 * the database that is slow or the client that does not read, and HTTP/2 passes that on to the client. What was read
 * of a frame that is larger than the bound is taken apart as answers go out.
 *
 * Beside the answers go verdicts that nobody asked for, on leases that were last kept here: see `LeaseNews`. They are
 * looked up when they are told of, and only while the client keeps up: see `UnaskedVerdicts`.
 *
 * Ends in one of four ways. The client has ended its side: what is in flight is answered, then the stream ends well.
 * A frame cannot be read: the frames before it are answered, then it ends with that error. The database fails: what
 * is ready goes out, and it ends with that error, because the client has to know that it was not heard; an engine that
 * is merely overloaded is asked again for a while, because a stream that were ended for that would come back as another
 * and bring more load. The server is about to stop: the client gets a verdict with `drain` on every lease as far as
 * time allows, nothing more is read, and then the stream ends well. A client that is gone ends everything at once;
 * no end releases anything.
 */
import type { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { DomainError } from '../domain/errors.ts';
import type { Verdict } from '../domain/lease.ts';
import { limits } from '../domain/limits.ts';
import type { Heartbeats } from '../engine/heartbeat.ts';
import type { Follower, LeaseListener, LeaseNews } from '../engine/lease-news.ts';
import { AnswerQueue } from './heartbeat-answers.ts';
import { encodeVerdicts, HeartbeatFrame, type NamedBeat, WorkerName } from './heartbeat-frames.ts';
import type { FrameSession, FrameStream, Implementation } from './implementation.ts';
import { createLooks, type Looks, UnaskedVerdicts } from './unasked-verdicts.ts';

/** Heartbeats in one call to the engine: what it takes in one batch. */
const callBeats = 2_000;
/** Calls of one stream to the engine: enough for the next batch to be full while one is in flight. */
const callsMax = 4;
/** How long an overloaded engine is asked again, and how long a pause is at the most. */
const overloadedMs = 10_000;
const pauseMs = 100;
/** How long a stream may go on telling its leases that the server is about to stop. */
const drainMs = 1_500;

/** What a session needs of the engine. */
export interface HeartbeatEngine {
  heartbeats: Pick<Heartbeats, 'beatEach' | 'look' | 'draining'>;
  leaseNews: LeaseNews;
}

/** LeasesService.StreamHeartbeats, to be spread into the rest of the service. */
export function streamHeartbeats(
  engine: HeartbeatEngine,
): Pick<Implementation<typeof LeasesService>, 'streamHeartbeats'> {
  const { heartbeats, leaseNews } = engine;
  const looks = createLooks(heartbeats);
  return {
    streamHeartbeats: (stream, { signal }) =>
      new HeartbeatStream({ stream, signal, heartbeats, leaseNews, looks }),
  };
}

interface SessionOptions {
  stream: FrameStream;
  signal: AbortSignal | undefined;
  heartbeats: HeartbeatEngine['heartbeats'];
  leaseNews: LeaseNews;
  looks: Looks;
}

class HeartbeatStream implements FrameSession, LeaseListener {
  readonly #stream: FrameStream;
  readonly #signal: AbortSignal | undefined;
  readonly #heartbeats: HeartbeatEngine['heartbeats'];
  readonly #follower: Follower;
  readonly #worker = new WorkerName();
  readonly #answers = new AnswerQueue();
  readonly #unasked: UnaskedVerdicts;

  /** The frame that is being taken apart. */
  #frame: HeartbeatFrame | undefined;
  /** Heartbeats that wait for their call. */
  #gathered: NamedBeat[] = [];
  /** Of all heartbeats that have been read and whose answers have not left. */
  #weight = 0;
  #calls = 0;
  /** Heartbeats on locked rows, whose verdicts come when those are free. */
  #late = 0;
  #asking = true;
  #boarding = false;
  #flushing = false;
  #sending = false;

  #clientEnded = false;
  /** What the stream will end with, and whether what has been read is answered before that. */
  #failure: { error: unknown; answersRest: boolean } | undefined;
  #drain: 'no' | 'telling' | 'told' = 'no';
  #closed = false;
  #drainTimer: NodeJS.Timeout | undefined;
  #pauseTimer: NodeJS.Timeout | undefined;
  #overloadedAtMs: number | undefined;

  constructor({ stream, signal, heartbeats, leaseNews, looks }: SessionOptions) {
    this.#stream = stream;
    this.#signal = signal;
    this.#heartbeats = heartbeats;
    this.#unasked = new UnaskedVerdicts({
      looks,
      signal,
      onFound: (leaseIds, verdicts) => this.#oweUnasked(leaseIds, verdicts),
      onLooked: () => this.#advance(),
    });
    this.#follower = leaseNews.follow(this);
  }

  onFrame(frame: Buffer): void {
    this.#asking = false;
    if (this.#failure) return;
    this.#frame = new HeartbeatFrame(frame, this.#worker);
    this.#advance();
  }

  onEnd(): void {
    this.#clientEnded = true;
    this.#advance();
  }

  onGone(): void {
    this.#close();
  }

  onNews(leaseIds: readonly string[]): void {
    if (this.#closed) return;
    this.#unasked.add(leaseIds);
    this.#advance();
  }

  onDrained(): void {
    if (this.#closed || this.#drain !== 'no') return;
    this.#drain = 'telling';
    this.#drainTimer = setTimeout(() => {
      this.#drain = 'told';
      this.#advance();
    }, drainMs);
    // A stream that is told while it is being opened has nothing to send yet.
    queueMicrotask(() => this.#advance());
  }

  /** Does whatever can be done now. */
  #advance(): void {
    this.#safely(() => {
      this.#takeApart();
      this.#callForBoarding();
      this.#callForFlushing();
      this.#callForLooking();
      this.#readOn();
      this.#endIfDone();
    });
  }

  /** A mistake of ours ends the stream, and nothing else. */
  #safely(work: () => void): void {
    if (this.#closed) return;
    try {
      work();
    } catch (error) {
      this.#close();
      this.#stream.end(error);
    }
  }

  get #hasRoom(): boolean {
    return this.#weight < limits.streamHeartbeats;
  }

  #takeApart(): void {
    while (this.#frame && this.#hasRoom) {
      const frame = this.#frame;
      try {
        const piece = frame.next(Math.min(callBeats, limits.streamHeartbeats - this.#weight));
        this.#weight += piece.weight;
        if (this.#gathered.length === 0) this.#gathered = piece.beats;
        else for (const beat of piece.beats) this.#gathered.push(beat);
        this.#answers.owe(piece.refused, piece.refusals);
      } catch (error) {
        this.#failure ??= { error, answersRest: true };
        this.#frame = undefined;
        return;
      }
      if (!frame.done) continue;
      this.#frame = undefined;
      if (frame.heartbeats > 0) continue;
      this.#answers.oweEmptyFrame();
      this.#weight++;
    }
  }

  #readOn(): void {
    if (this.#asking || this.#frame || !this.#hasRoom) return;
    if (this.#clientEnded || this.#failure || this.#drain !== 'no') return;
    this.#asking = true;
    this.#stream.read();
  }

  /** What is read in this turn of the event loop leaves together at its end. */
  #callForBoarding(): void {
    if (this.#boarding || this.#gathered.length === 0 || this.#calls >= callsMax || this.#pauseTimer) return;
    this.#boarding = true;
    setImmediate(() => {
      this.#boarding = false;
      if (this.#closed || this.#pauseTimer) return;
      while (this.#gathered.length > 0 && this.#calls < callsMax) {
        const all = this.#gathered;
        this.#gathered = all.length > callBeats ? all.slice(callBeats) : [];
        void this.#call(all.length > callBeats ? all.slice(0, callBeats) : all);
      }
    });
  }

  async #call(beats: readonly NamedBeat[]): Promise<void> {
    this.#calls++;
    try {
      this.#hear(beats, await this.#heartbeats.beatEach(beats, this.#signal));
    } catch (error) {
      this.#miss(beats, error);
    } finally {
      this.#calls--;
      this.#advance();
    }
  }

  /** What the engine can say goes out; what it will say later, of rows that somebody has locked, is not waited for. */
  #hear(beats: readonly NamedBeat[], verdicts: readonly (Verdict | Promise<Verdict>)[]): void {
    const late = new Set<number>();
    for (let i = 0; i < verdicts.length; i++) if (verdicts[i] instanceof Promise) late.add(i);
    if (late.size === 0) {
      this.#settle(beats, verdicts as readonly Verdict[]);
      return;
    }
    for (const i of late) void this.#hearLater(beats[i] as NamedBeat, verdicts[i] as Promise<Verdict>);
    const isThere = (_: unknown, i: number) => !late.has(i);
    this.#settle(beats.filter(isThere), verdicts.filter(isThere) as Verdict[]);
  }

  async #hearLater(beat: NamedBeat, verdict: Promise<Verdict>): Promise<void> {
    this.#late++;
    try {
      this.#settle([beat], [await verdict]);
    } catch (error) {
      // The next heartbeat asks again. Only where none will come does the client have to be told.
      if (this.#clientEnded) this.#miss([beat], error);
      else this.#weight -= beat.weight;
    } finally {
      this.#late--;
      this.#advance();
    }
  }

  #settle(beats: readonly NamedBeat[], verdicts: readonly Verdict[]): void {
    if (this.#closed) return;
    this.#overloadedAtMs = undefined;
    this.#follower.heard(beats, verdicts);
    this.#answers.owe(beats, verdicts);
  }

  #miss(beats: readonly NamedBeat[], error: unknown): void {
    if (this.#closed) return;
    if (this.#mayAskAgain(error)) {
      this.#gathered = [...beats, ...this.#gathered];
      this.#pause();
    } else {
      this.#failure = { error: this.#failure?.error ?? error, answersRest: false };
      this.#frame = undefined;
      this.#gathered = [];
    }
  }

  #mayAskAgain(error: unknown): boolean {
    if (!(error instanceof DomainError) || error.code !== 'overloaded') return false;
    if (this.#failure && !this.#failure.answersRest) return false;
    this.#overloadedAtMs ??= performance.now();
    return performance.now() - this.#overloadedAtMs < overloadedMs;
  }

  #pause(): void {
    this.#pauseTimer ??= setTimeout(
      () => {
        this.#pauseTimer = undefined;
        this.#advance();
      },
      (pauseMs * (1 + Math.random())) / 2,
    );
  }

  /** What becomes ready in this turn goes out together: calls of one batch are answered one after the other. */
  #callForFlushing(): void {
    if (this.#flushing || this.#sending || this.#answers.isEmpty) return;
    this.#flushing = true;
    queueMicrotask(() => {
      this.#flushing = false;
      this.#safely(() => this.#send());
    });
  }

  #send(): void {
    const { leases, verdicts } = this.#answers.next();
    let weight = leases.length === 0 ? 1 : 0;
    for (const lease of leases) weight += lease.weight;
    this.#sending = true;
    this.#stream.send(encodeVerdicts(leases, verdicts, this.#heartbeats.draining), () => {
      this.#sending = false;
      this.#weight -= weight;
      this.#advance();
    });
  }

  #callForLooking(): void {
    if (!this.#hasRoom || this.#clientEnded || this.#failure || this.#drain === 'told') return;
    this.#unasked.callForLooking();
  }

  #oweUnasked(leaseIds: readonly string[], verdicts: readonly Verdict[]): void {
    if (this.#closed) return;
    this.#follower.forget(leaseIds.filter((_, i) => verdicts[i]?.kind === 'lost'));
    this.#weight += leaseIds.length;
    this.#answers.owe(
      leaseIds.map((named) => ({ named, weight: 1 })),
      verdicts,
    );
  }

  #endIfDone(): void {
    if (this.#frame || this.#gathered.length > 0 || this.#calls > 0 || this.#late > 0) return;
    if (!this.#answers.isEmpty || this.#sending) return;
    const isTold = this.#drain === 'told' || (this.#drain === 'telling' && this.#unasked.isIdle);
    if (!this.#failure && !this.#clientEnded && !isTold) return;
    this.#close();
    this.#stream.end(this.#failure?.error);
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#follower.close();
    clearTimeout(this.#drainTimer);
    clearTimeout(this.#pauseTimer);
    this.#frame = undefined;
    this.#gathered = [];
    this.#answers.clear();
    this.#unasked.clear();
  }
}

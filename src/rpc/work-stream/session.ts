/**
 * LeasesService.StreamWork: one stream's session.
 *
 * What it has in common with the heartbeat stream is one: every frame that has signs of life in it is handed to a
 * `HeartbeatStream`, which reads nothing but those, and whose frames go out as they are, because the fields it writes are
 * the same here. What is here is the rest: credit becomes a `CreditFetcher` for each kind, what is handed in is gathered for
 * the desk, and grants and answers go out together.
 *
 * Promises: never more is granted than there is credit for; what is handed in is answered once, after its commit, and what
 * is wrong with it is an answer. Between being read and being answered there is a bounded weight of it, and nothing is asked of the queue
 * while what was granted before has not left: a client that does not read is granted no more, and holds up no other.
 *
 * An outage of the database does not end it: what is handed in is refused as `unavailable`, and credit stays. It ends like the
 * heartbeat stream, with which it ends: when the client has ended its side and everything is answered; with an
 * error, when a frame cannot be read or the server itself fails; or when the server is about to stop, which it says first.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError, invalid } from '../../domain/errors.ts';
import type { Grant, Release, Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { isOutage } from '../../engine/context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../../engine/context/overload.ts';
import type { EndOutcome } from '../../engine/dispatch/lease-endings.ts';
import { type Acquirer, requestClassOf } from '../../engine/leases/acquirer.ts';
import { CreditFetcher } from '../../engine/leases/credit-fetcher.ts';
import type { Releaser } from '../../engine/leases/releaser.ts';
import type { KnownWorkers, WorkerStream } from '../../engine/workers/known-workers.ts';
import { createLookups, type Lookups } from '../heartbeat-stream/pushed-verdicts.ts';
import { type HeartbeatEngine, HeartbeatStream } from '../heartbeat-stream/session.ts';
import type { FrameSession, FrameStream, Implementation } from '../implementation.ts';
import { checkName } from '../wire/frame-fields.ts';
import {
  type CreditField,
  type CreditRequest,
  drainFrame,
  encodeWork,
  type NamedRelease,
  type ReleaseAnswer,
  WorkFrame,
} from './frames.ts';

/** What a session needs of the engine. */
export interface WorkEngine extends HeartbeatEngine {
  acquirer: Pick<Acquirer, 'fetch'>;
  releaser: Pick<Releaser, 'endEach'>;
  workers: Pick<KnownWorkers, 'open'>;
}

/** Of what is handed in, so much goes to the desk in one call: half of what one transaction there holds. */
const callReleases = 250;
/** How long an overloaded engine is asked again. */
const overloadedMs = 10_000;

/** LeasesService.StreamWork, to be spread into the rest of the service. */
export function streamWork(engine: WorkEngine): Pick<Implementation<typeof LeasesService>, 'streamWork'> {
  const looks = createLookups(engine.heartbeats, engine.metrics);
  return {
    streamWork: (stream, { peer, signal }) => new WorkStream({ engine, looks, stream, peer, signal }),
  };
}

interface SessionOptions {
  engine: WorkEngine;
  looks: Lookups;
  stream: FrameStream;
  peer: string;
  signal: AbortSignal | undefined;
}

class WorkStream implements FrameSession {
  readonly #engine: WorkEngine;
  readonly #stream: FrameStream;
  readonly #heartbeats: HeartbeatStream;
  readonly #fetchers = new Map<string, CreditFetcher>();
  /** The same by the bytes in which a kind was told of, so that it need not be made out again. */
  readonly #fetchersByCredit = new Map<string, CreditFetcher>();
  readonly #listed: WorkerStream;
  #workerId: string | undefined;

  /** The frame that is being taken apart. */
  #frame: WorkFrame | undefined;
  #gathered: NamedRelease[] = [];
  /** Of all that has been handed in and whose answers have not left. */
  #weight = 0;
  #underWay = 0;
  #callScheduled = false;
  #answers: ReleaseAnswer[] = [];
  #grants: Grant[] = [];
  #sendScheduled = false;
  #sending = false;
  /** What is being sent has grants in it. */
  #grantsLeave = false;

  /** The heartbeats are ready for another frame. */
  #heartbeatsAreNext = true;
  #callRunning = true;
  #heartbeatsEnded = false;
  #clientEnded = false;
  #drainSent = false;
  /** What the stream will end with. */
  #failure: { error: unknown } | undefined;
  #closed = false;

  constructor({ engine, looks, stream, peer, signal }: SessionOptions) {
    this.#engine = engine;
    this.#stream = stream;
    this.#listed = engine.workers.open('WORK_STREAM', peer, () => this.#fetchers.values());
    const { heartbeats, ownerHeartbeats, leaseSubscriptions } = engine;
    const half: FrameStream = {
      read: () => {
        this.#heartbeatsAreNext = true;
        this.#advance();
      },
      send: (frame, onSent) => stream.send(frame, onSent),
      end: (error) => this.#onHeartbeatsEnded(error),
    };
    this.#heartbeats = new HeartbeatStream({
      stream: half,
      signal,
      heartbeats,
      ownerHeartbeats,
      leaseSubscriptions,
      looks,
    });
  }

  onFrame(bytes: Buffer): void {
    this.#callRunning = false;
    if (this.#failure || this.#heartbeatsEnded) return;
    try {
      const frame = new WorkFrame(bytes);
      this.#workerId = this.#nameIn(frame);
      this.#listed.heard(this.#workerId);
      this.#frame = frame;
      if (frame.hasHeartbeats) {
        this.#heartbeatsAreNext = false;
        this.#heartbeats.onFrame(bytes, this.#workerId);
      }
    } catch (error) {
      this.#fail(error);
    }
    this.#advance();
  }

  onEnd(): void {
    this.#clientEnded = true;
    this.#closeFetchers();
    this.#heartbeats.onEnd();
    this.#advance();
  }

  onGone(): void {
    this.#heartbeats.onGone();
    this.#close();
  }

  #nameIn({ workerId }: WorkFrame): string {
    if (workerId === undefined || workerId === '') {
      if (this.#workerId === undefined) throw invalid('worker_id', 'has to be said in the first frame');
      return this.#workerId;
    }
    if (workerId === this.#workerId) return workerId;
    if (this.#workerId !== undefined)
      throw invalid('worker_id', 'is another than the one of the first frame');
    checkName(workerId, 'worker_id');
    return workerId;
  }

  /** Does whatever can be done now. */
  #advance(): void {
    this.#safely(() => {
      this.#readFrame();
      this.#scheduleCall();
      this.#scheduleSend();
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
      this.#heartbeats.onGone();
      this.#close();
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
        const piece = frame.next(limits.streamHeartbeats - this.#weight, this.#workerId as string);
        this.#weight += piece.weight;
        for (const release of piece.releases) this.#gathered.push(release);
        for (const { named, weight, problem } of piece.refused)
          this.#answers.push({ named, weight, outcome: problem });
        for (const credit of piece.credits) this.#addCredit(credit);
        if (frame.done) this.#frame = undefined;
      } catch (error) {
        this.#fail(error);
      }
    }
  }

  #readOn(): void {
    if (this.#callRunning || !this.#heartbeatsAreNext || this.#frame || !this.#hasRoom) return;
    if (this.#clientEnded || this.#failure || this.#heartbeatsEnded) return;
    this.#callRunning = true;
    this.#stream.read();
  }

  #addCredit(credit: CreditField): void {
    // A frame may be taken apart only after the client has ended its side, or the server has begun to stop.
    if (this.#clientEnded || this.#failure || this.#heartbeatsEnded) return;
    const order = this.#fetchersByCredit.get(credit.bytes) ?? this.#find(credit);
    if (credit.jobs === 0) order?.revokeCredit();
    else if (order) this.#add(order, credit.jobs);
  }

  #add(order: CreditFetcher, jobs: number): void {
    if (order.credit === 0) {
      const wanted = [...this.#fetchers.values()].filter(({ credit }) => credit > 0).length;
      if (wanted >= limits.creditKinds) throw tooManyKinds;
    }
    order.add(jobs);
  }

  /** The order for a kind; none where credit is taken back that nobody gave. */
  #find({ bytes, wanted: read, jobs }: CreditField): CreditFetcher | undefined {
    const wanted = read();
    const kind = requestClassOf(wanted.filter, wanted.ttlS);
    const known = this.#fetchers.get(kind);
    if (!known && jobs === 0) return undefined;
    const order = known ?? this.#newFetcher(kind, wanted);
    // One kind can be told of in many ways, of which the latest are worth knowing.
    if (this.#fetchersByCredit.size >= 2 * limits.creditKinds) this.#fetchersByCredit.clear();
    this.#fetchersByCredit.set(bytes, order);
    return order;
  }

  #newFetcher(kind: string, { filter, ttlS }: CreditRequest): CreditFetcher {
    for (const [other, { isIdle }] of this.#fetchers) if (isIdle) this.#removeFetcher(other);
    // What is not wanted any more has its last question answered soon.
    if (this.#fetchers.size >= 2 * limits.creditKinds) throw tooManyKinds;
    const order = new CreditFetcher({
      acquirer: this.#engine.acquirer,
      workerId: this.#workerId as string,
      filter,
      ttlS,
      canFetch: () => this.#grants.length === 0 && !this.#grantsLeave,
      onGrants: (grants) => this.#onGrants(grants),
      onFailed: (error) => {
        this.#fail(error);
        this.#advance();
      },
    });
    this.#fetchers.set(kind, order);
    return order;
  }

  #removeFetcher(kind: string): void {
    const order = this.#fetchers.get(kind);
    this.#fetchers.delete(kind);
    for (const [bytes, said] of this.#fetchersByCredit)
      if (said === order) this.#fetchersByCredit.delete(bytes);
  }

  #onGrants(grants: readonly Grant[]): void {
    if (this.#closed) return;
    this.#heartbeats.follow(
      grants.map(({ lease }) => lease),
      grants.map(newlyGranted),
    );
    for (const grant of grants) this.#grants.push(grant);
    this.#advance();
  }

  /** What is read in this turn of the event loop leaves together at its end. */
  #scheduleCall(): void {
    if (this.#callScheduled || this.#gathered.length === 0) return;
    this.#callScheduled = true;
    setImmediate(() => {
      this.#callScheduled = false;
      const gathered = this.#gathered;
      this.#gathered = [];
      for (let i = 0; i < gathered.length; i += callReleases)
        void this.#release(gathered.slice(i, i + callReleases));
    });
  }

  /** Goes on though the client may have gone: it has said how its jobs went. */
  async #release(releases: readonly NamedRelease[]): Promise<void> {
    this.#underWay++;
    try {
      const ended = await this.#endEach(releases.map(({ release }) => release));
      for (const [i, one] of ended.entries()) this.#settle(releases[i] as NamedRelease, one);
    } catch (error) {
      if (!isOutage(error)) this.#fail(error);
      else if (!this.#closed)
        for (const { named, weight } of releases)
          this.#answers.push({ named, weight, outcome: databaseUnavailable });
    } finally {
      this.#underWay--;
      this.#advance();
    }
  }

  /** An engine that is merely overloaded is asked again for a while. */
  async #endEach(releases: readonly Release[]): ReturnType<Releaser['endEach']> {
    const sinceMs = performance.now();
    for (;;) {
      try {
        return await this.#engine.releaser.endEach(releases);
      } catch (error) {
        if (!isOverload(error) || performance.now() - sinceMs > overloadedMs) throw error;
        await delay(overloadPauseMs());
      }
    }
  }

  #settle(release: NamedRelease, outcome: EndOutcome | Error | Promise<EndOutcome>): void {
    if (outcome instanceof Promise) {
      this.#underWay++;
      void outcome
        .then(
          (ended) => this.#settle(release, ended),
          (error: Error) => this.#settle(release, error instanceof DomainError ? error : rowLocked),
        )
        .finally(() => {
          this.#underWay--;
          this.#advance();
        });
      return;
    }
    const { named, weight } = release;
    if (!(outcome instanceof Error)) this.#heartbeats.forget([release.release.leaseId]);
    else if (isOutage(outcome)) {
      this.#answers.push({ named, weight, outcome: databaseUnavailable });
      return;
    } else if (!(outcome instanceof DomainError)) {
      this.#fail(outcome);
      return;
    }
    this.#answers.push({ named, weight, outcome });
  }

  /** What becomes ready in this turn goes out together. */
  #scheduleSend(): void {
    if (this.#sendScheduled || this.#sending) return;
    if (this.#answers.length === 0 && this.#grants.length === 0) return;
    this.#sendScheduled = true;
    queueMicrotask(() => {
      this.#sendScheduled = false;
      this.#safely(() => this.#send());
    });
  }

  #send(): void {
    const { frame, answers, grants } = encodeWork(this.#answers, this.#grants);
    const weight = this.#answers.splice(0, answers).reduce((sum, one) => sum + one.weight, 0);
    this.#grants.splice(0, grants);
    this.#sending = true;
    this.#grantsLeave = grants > 0;
    this.#stream.send(frame, () => {
      this.#sending = false;
      this.#grantsLeave = false;
      this.#weight -= weight;
      this.#advance();
      if (this.#grants.length === 0) for (const order of this.#fetchers.values()) order.advance();
    });
  }

  /** Nothing more is read or granted; what has been read is answered, as far as that goes. */
  #fail(error: unknown): void {
    if (this.#closed || this.#failure) return;
    this.#failure = { error };
    this.#frame = undefined;
    this.#closeFetchers();
    this.#heartbeats.onEnd();
  }

  #onHeartbeatsEnded(error: unknown): void {
    this.#heartbeatsEnded = true;
    if (error !== undefined) this.#failure ??= { error };
    this.#closeFetchers();
    this.#advance();
  }

  #endIfDone(): void {
    if (!this.#heartbeatsEnded || this.#underWay > 0 || this.#sending) return;
    if (this.#frame || this.#gathered.length > 0 || this.#answers.length > 0 || this.#grants.length > 0)
      return;
    if (!this.#failure && !this.#clientEnded && !this.#drainSent) {
      this.#drainSent = true;
      this.#sending = true;
      this.#stream.send(drainFrame(), () => {
        this.#sending = false;
        this.#advance();
      });
      return;
    }
    this.#close();
    this.#stream.end(this.#failure?.error);
  }

  #closeFetchers(): void {
    for (const order of this.#fetchers.values()) order.close();
  }

  #close(): void {
    this.#closed = true;
    this.#listed.close();
    this.#closeFetchers();
    this.#frame = undefined;
    this.#answers = [];
    this.#grants = [];
  }
}

const tooManyKinds = invalid(
  'credits',
  `there may be credit for ${limits.creditKinds} kinds at the same time`,
);

/** Somebody has its row, for longer than may be waited for; that is nobody else's fault on the stream. */
const rowLocked = new DomainError('unavailable', 'somebody else has the job just now; hand it in again');

const databaseUnavailable = new DomainError(
  'unavailable',
  'the database does not answer; whether it was taken is not known: hand it in again',
);

/** A lease that is followed from its grant on. */
const newlyGranted = ({ lease: { expiresAtMs }, heartbeatWithinMs }: Grant): Verdict => ({
  kind: 'extended',
  expiresAtMs,
  ttlRemainingMs: heartbeatWithinMs,
  cancelRequested: false,
});

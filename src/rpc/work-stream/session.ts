/**
 * LeasesService.StreamWork: the session of one stream.
 * - Purpose: a heartbeat stream that also grants and releases leases. A `HeartbeatStream` gets each frame
 *   with heartbeats and reads only those. Its frames leave unchanged, because its fields have the same
 *   numbers here. This class keeps a `CreditFetcher` for each kind, gathers releases for the dispatcher, and
 *   sends grants and answers together.
 * - Guarantees: the server never grants more than there is credit for. Each release is answered once, after
 *   its commit; an error in a release is an answer. The weight of releases between reading and answering is
 *   bounded. The session requests no job while earlier grants have not left: a client that does not read is
 *   granted nothing more, and delays no other.
 * - Lifecycle: the session ends with its `HeartbeatStream`: when the client has ended its side and everything
 *   is answered, or when the server is about to stop, after a frame with `drain`.
 * - Failure modes: in an outage of the database releases are refused as `unavailable`, credit stays, and the
 *   stream goes on. A frame that cannot be read or a failure of the server itself ends the stream with an
 *   error.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError, invalid } from '../../domain/errors.ts';
import type { Grant, Release, Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { isOutage } from '../../engine/context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../../engine/context/overload.ts';
import type { EndOutcome } from '../../engine/dispatch/lease-endings.ts';
import type { Engine } from '../../engine/engine.ts';
import { requestClassOf } from '../../engine/leases/acquirer.ts';
import { CreditFetcher } from '../../engine/leases/credit-fetcher.ts';
import type { WorkerStream } from '../../engine/workers/known-workers.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { createLookups, type Lookups } from '../heartbeat-stream/pushed-verdicts.ts';
import { type HeartbeatEngine, HeartbeatStream } from '../heartbeat-stream/session.ts';
import type { FrameSession, FrameStream, Implementation } from '../implementation.ts';
import { checkName } from '../wire/frame-fields.ts';
import { drainFrame, encodeWork, type ReleaseAnswer } from './encode.ts';
import { type CreditField, type CreditRequest, type NamedRelease, WorkFrame } from './frames.ts';

/** What a session needs of the engine. */
export interface WorkEngine extends HeartbeatEngine {
  leases: HeartbeatEngine['leases'] & Pick<Engine['leases'], 'fetch' | 'endEach'>;
}

/** Releases in one call to the dispatcher: half of what one of its transactions holds. */
const callReleases = 250;
/** How long the session retries a call to an overloaded engine. */
const overloadedMs = 10_000;

/** LeasesService.StreamWork, to be spread into the rest of the service. */
export function streamWork(
  engine: WorkEngine,
  metrics?: Metrics,
): Pick<Implementation<typeof LeasesService>, 'streamWork'> {
  const looks = createLookups(engine.leases, metrics);
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
  /** The fetchers by the encoded form of their kind, so that a repeated credit need not be decoded. */
  readonly #fetchersByCredit = new Map<string, CreditFetcher>();
  readonly #listed: WorkerStream;
  #workerId: string | undefined;

  #frame: WorkFrame | undefined;
  #gathered: NamedRelease[] = [];
  /** Weight of all releases that have been read and whose answers have not left. */
  #weight = 0;
  #underWay = 0;
  #callScheduled = false;
  #answers: ReleaseAnswer[] = [];
  #grants: Grant[] = [];
  #sendScheduled = false;
  #sending = false;
  /** The frame that is being sent contains grants. */
  #grantsLeave = false;

  /** The `HeartbeatStream` is ready for another frame. */
  #heartbeatsAreNext = true;
  #callRunning = true;
  #heartbeatsEnded = false;
  #clientEnded = false;
  #drainSent = false;
  /** The error that the stream will end with. */
  #failure: { error: unknown } | undefined;
  #closed = false;

  constructor({ engine, looks, stream, peer, signal }: SessionOptions) {
    this.#engine = engine;
    this.#stream = stream;
    this.#listed = engine.workers.open('WORK_STREAM', peer, () => this.#fetchers.values());
    const half: FrameStream = {
      read: () => {
        this.#heartbeatsAreNext = true;
        this.#advance();
      },
      send: (frame, onSent) => stream.send(frame, onSent),
      end: (error) => this.#onHeartbeatsEnded(error),
    };
    this.#heartbeats = new HeartbeatStream({ engine, stream: half, signal, looks });
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

  #advance(): void {
    this.#safely(() => {
      this.#readFrame();
      this.#scheduleCall();
      this.#scheduleSend();
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
    // A slice may be read after the client has ended its side or the server has begun to stop.
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

  /** The fetcher for a kind. Undefined if the client revokes credit that it never gave. */
  #find({ bytes, wanted: read, jobs }: CreditField): CreditFetcher | undefined {
    const wanted = read(this.#workerId as string);
    const kind = requestClassOf(wanted.filter, wanted.ttlS);
    const known = this.#fetchers.get(kind);
    if (!known && jobs === 0) return undefined;
    const order = known ?? this.#newFetcher(kind, wanted);
    // A kind has many encodings. The map keeps only recent ones.
    if (this.#fetchersByCredit.size >= 2 * limits.creditKinds) this.#fetchersByCredit.clear();
    this.#fetchersByCredit.set(bytes, order);
    return order;
  }

  #newFetcher(kind: string, { filter, ttlS }: CreditRequest): CreditFetcher {
    for (const [other, { isIdle }] of this.#fetchers) if (isIdle) this.#removeFetcher(other);
    // A fetcher without credit becomes idle when its last request is answered, which is soon.
    if (this.#fetchers.size >= 2 * limits.creditKinds) throw tooManyKinds;
    const order = new CreditFetcher({
      leases: this.#engine.leases,
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

  /** Sends the releases that are read in one turn of the event loop together at its end. */
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

  /** Continues if the client disconnects: the client has already reported how its jobs ended. */
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

  /** Retries while the engine is overloaded, for `overloadedMs` at most. */
  async #endEach(releases: readonly Release[]): ReturnType<WorkEngine['leases']['endEach']> {
    const sinceMs = performance.now();
    for (;;) {
      try {
        return await this.#engine.leases.endEach(releases);
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

  /** Answers and grants that become ready in one turn leave in one frame. */
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

  /** Stops reading and granting. Releases that have been read are still answered if possible. */
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

/** Another transaction holds the row lock for longer than the session may wait; others are not affected. */
const rowLocked = new DomainError('unavailable', 'somebody else has the job just now; hand it in again');

const databaseUnavailable = new DomainError(
  'unavailable',
  'the database does not answer; whether it was taken is not known: hand it in again',
);

/** The verdict with which a subscription starts when its lease is granted. */
const newlyGranted = ({ lease: { expiresAtMs }, heartbeatWithinMs }: Grant): Verdict => ({
  kind: 'extended',
  expiresAtMs,
  ttlRemainingMs: heartbeatWithinMs,
  cancelRequested: false,
});

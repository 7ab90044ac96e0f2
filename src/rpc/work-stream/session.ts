/**
 * LeasesService.StreamWork: the session of one stream.
 * - Purpose: a heartbeat stream that also grants and releases leases. One frame may contain heartbeats,
 *   credits and releases; `WorkFrame` reads it once. Heartbeats go to `HeartbeatExchange`, credits to
 *   `Credits`, releases to `ReleaseCalls`. Grants and answers to releases leave together, in frames without
 *   verdicts.
 * - Guarantees: the server never grants more than there is credit for. The weight of releases between reading
 *   and answering is bounded. The session requests no job while earlier grants have not left: a client that
 *   does not read is granted nothing more, and delays no other.
 * - Lifecycle: the states are those of `heartbeat-stream/states.ts`. When the client has ended its side, the
 *   session ends after everything is answered. When the server is about to stop, it ends after a frame with
 *   `drain`. Credit counts in the state Open only.
 * - Failure modes: in an outage of the database releases are refused as `unavailable`, credit stays, and the
 *   stream goes on. A frame that cannot be read or a failure of the server itself ends the stream with an
 *   error.
 */
import type { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { invalid } from '../../domain/errors.ts';
import type { Grant, Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { type Refusals, reportedStream } from '../../engine/access/audit/refusals.ts';
import { streamEngineFor } from '../../engine/access/guarded-streams.ts';
import type { Engine } from '../../engine/engine.ts';
import type { WorkerStream } from '../../engine/workers/known-workers.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { createLookups, type Lookups } from '../heartbeat-stream/pushed-verdicts.ts';
import type { HeartbeatEngine } from '../heartbeat-stream/session.ts';
import { workTransitions } from '../heartbeat-stream/states.ts';
import { StreamSession } from '../heartbeat-stream/stream-session.ts';
import { WorkerName } from '../heartbeat-stream/worker-name.ts';
import type { FrameStream, Implementation } from '../implementation.ts';
import { checkName } from '../wire/frame-fields.ts';
import { Credits } from './credits.ts';
import { drainFrame, encodeWork, type ReleaseAnswer } from './encode.ts';
import { WorkFrame, type WorkSlice } from './frames.ts';
import { ReleaseCalls } from './release-calls.ts';

/** What a session needs of the engine. */
export interface WorkEngine extends HeartbeatEngine {
  /** Records refused frames. */
  readonly refusals?: Refusals;
  leases: HeartbeatEngine['leases'] & Pick<Engine['leases'], 'fetch' | 'endEach'>;
}

/** LeasesService.StreamWork, to be spread into the rest of the service. */
export function streamWork(
  engine: WorkEngine,
  metrics?: Metrics,
): Pick<Implementation<typeof LeasesService>, 'streamWork'> {
  const looks = createLookups(engine.leases, metrics);
  return {
    streamWork: (stream, caller) => {
      const { peer, principal, signal } = caller;
      const own = reportedStream(streamEngineFor(engine, principal), engine.refusals, caller);
      return new WorkStream({ engine: own, looks, stream, peer, signal });
    },
  };
}

interface WorkStreamOptions {
  engine: WorkEngine;
  looks: Lookups;
  stream: FrameStream;
  peer: string;
  signal: AbortSignal | undefined;
}

export class WorkStream extends StreamSession<WorkSlice> {
  readonly #listed: WorkerStream;
  readonly #credits: Credits;
  readonly #releases: ReleaseCalls;
  readonly #workerName = new WorkerName();
  /** The worker of the stream, which the first frame contains. */
  #workerId: string | undefined;

  /** Weight of all releases that have been read and whose answers have not left. */
  #weight = 0;
  #answers: ReleaseAnswer[] = [];
  #grants: Grant[] = [];
  #sendScheduled = false;
  #sending = false;
  /** The frame that is being sent contains grants. */
  #grantsLeave = false;

  constructor({ engine, looks, stream, peer, signal }: WorkStreamOptions) {
    super({ engine, looks, stream, signal, transitions: workTransitions });
    this.#credits = new Credits({
      leases: engine.leases,
      canFetch: () => this.#grants.length === 0 && !this.#grantsLeave,
      onGrants: (grants) => this.#onGrants(grants),
      onFailed: (error) => this.handle('work fails', error),
    });
    this.#releases = new ReleaseCalls({
      leases: engine.leases,
      onAnswer: (answer) => {
        if (this.state !== 'Closed') this.#answers.push(answer);
      },
      onEnded: (leaseId) => this.heartbeats.forget([leaseId]),
      onFailed: (error) => this.handle('work fails', error),
      onDone: () => this.advance(),
    });
    this.#listed = engine.workers.open('WORK_STREAM', peer, () => this.#credits.fetchers);
  }

  /** A stream of work says so in a frame of its own, after which it ends: the client loses no time. */
  override onLeave(): void {
    super.onLeave();
    this.onServerStops();
  }

  protected override get sliceMax(): number {
    return Math.min(this.heartbeats.room, limits.streamHeartbeats - this.#weight);
  }

  protected override get isWorkAnswered(): boolean {
    if (!this.#releases.isIdle || this.#sending) return false;
    return this.#answers.length === 0 && this.#grants.length === 0;
  }

  protected override openFrame(bytes: Buffer): WorkFrame {
    this.#workerId ??= firstWorkerIn(bytes);
    this.#listed.heard(this.#workerId);
    return new WorkFrame(bytes, this.#workerName, this.#workerId);
  }

  protected override takeSlice(slice: WorkSlice): void {
    this.heartbeats.take(slice, slice.weight - slice.releaseWeight);
    this.#weight += slice.releaseWeight;
    this.#releases.gather(slice.releases);
    for (const { named, weight, problem } of slice.refusedReleases)
      this.#answers.push({ named, weight, outcome: problem });
    // A slice may be read after the client has ended its side or the server has begun to stop.
    if (this.state !== 'Open') return;
    for (const credit of slice.credits) this.#credits.add(credit, this.#workerId as string);
  }

  protected override advanceWork(): void {
    this.#releases.schedule();
    this.#scheduleSend();
  }

  protected override stopWork(): void {
    this.#credits.close();
  }

  protected override sendDrainFrame(): void {
    this.heartbeats.close('drained');
    this.#credits.close();
    this.#sendFrame(drainFrame(), 0);
  }

  protected override close(): void {
    this.#listed.close();
    this.#credits.close();
    this.#answers = [];
    this.#grants = [];
  }

  #onGrants(grants: readonly Grant[]): void {
    if (this.state === 'Closed') return;
    this.heartbeats.follow(
      grants.map(({ lease }) => lease),
      grants.map(newlyGranted),
    );
    for (const grant of grants) this.#grants.push(grant);
    this.advance();
  }

  /** Answers and grants that become ready in one turn leave in one frame. */
  #scheduleSend(): void {
    if (this.#sendScheduled || this.#sending) return;
    if (this.#answers.length === 0 && this.#grants.length === 0) return;
    this.#sendScheduled = true;
    queueMicrotask(() => {
      this.#sendScheduled = false;
      this.safely(() => this.#send());
    });
  }

  #send(): void {
    const { frame, answers, grants } = encodeWork(this.#answers, this.#grants);
    const weight = this.#answers.splice(0, answers).reduce((sum, one) => sum + one.weight, 0);
    this.#grants.splice(0, grants);
    this.#grantsLeave = grants > 0;
    this.#sendFrame(frame, weight);
  }

  #sendFrame(frame: Buffer, weight: number): void {
    this.#sending = true;
    this.send(frame, () => {
      this.#sending = false;
      this.#grantsLeave = false;
      this.#weight -= weight;
      this.advance();
      if (this.#grants.length === 0) this.#credits.advance();
    });
  }
}

/** The worker in the first frame of a stream. Its field may follow the items that need it. */
function firstWorkerIn(bytes: Buffer): string {
  const workerId = WorkFrame.workerIn(bytes);
  if (workerId === '') throw invalid('worker_id', 'has to be said in the first frame');
  checkName(workerId, 'worker_id');
  return workerId;
}

/** The verdict with which a subscription starts when its lease is granted. */
const newlyGranted = ({ lease: { expiresAtMs }, heartbeatWithinMs }: Grant): Verdict => ({
  kind: 'extended',
  expiresAtMs,
  ttlRemainingMs: heartbeatWithinMs,
  cancelRequested: false,
});

/**
 * LeasesService.StreamHeartbeats: the session of one stream.
 * - Purpose: answers heartbeats for leases of jobs and, in frames of their own, for owners of file leases. It
 *   also pushes verdicts on leases that were last renewed here. See `HeartbeatExchange`.
 * - Guarantees: an invalid heartbeat gets a verdict and never ends the stream. An empty frame is answered by
 *   an empty frame. At the bound of unanswered weight the session reads nothing more, whether database or
 *   client is slow, and HTTP/2 passes that on to the client.
 * - Lifecycle: the states are those of `states.ts`. If the client ends its side, heartbeats in flight are
 *   answered first. If a frame cannot be read, the frames before it are answered, then the stream ends with
 *   that error. Before the server stops, each lease gets a verdict with `drain` as far as time allows. A
 *   disconnect ends everything at once. No end of a stream releases a lease.
 * - Failure modes: if the server itself fails, ready verdicts leave and the stream ends with the error.
 */
import type { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { streamEngineFor } from '../../engine/access/guarded-streams.ts';
import type { Engine } from '../../engine/engine.ts';
import type { WorkerStream } from '../../engine/workers/known-workers.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Implementation } from '../implementation.ts';
import { heartbeatsPerCall } from './engine-calls.ts';
import { type FrameSlice, HeartbeatFrame, type SlicedFrame } from './frames.ts';
import type { ExchangeEngine } from './heartbeat-exchange.ts';
import { createLookups } from './pushed-verdicts.ts';
import { heartbeatTransitions } from './states.ts';
import { type SessionOptions, StreamSession } from './stream-session.ts';
import { WorkerName } from './worker-name.ts';

/** What a session needs of the engine. */
export interface HeartbeatEngine extends ExchangeEngine {
  workers: Pick<Engine['workers'], 'open'>;
}

/** LeasesService.StreamHeartbeats, to be spread into the rest of the service. */
export function streamHeartbeats(
  engine: HeartbeatEngine,
  metrics?: Metrics,
): Pick<Implementation<typeof LeasesService>, 'streamHeartbeats'> {
  const looks = createLookups(engine.leases, metrics);
  return {
    streamHeartbeats: (stream, { peer, principal, signal }) => {
      const listed = engine.workers.open('HEARTBEAT_STREAM', peer, asksForNothing);
      const own = streamEngineFor(engine, principal);
      return new HeartbeatStream({ engine: own, stream, signal, looks }, listed);
    },
  };
}

const asksForNothing = () => [];

export class HeartbeatStream extends StreamSession<FrameSlice> {
  /** The stream's entry in the list of workers' streams. */
  readonly #listed: WorkerStream;
  readonly #worker = new WorkerName();

  constructor(options: Omit<SessionOptions, 'transitions'>, listed: WorkerStream) {
    super({ ...options, transitions: heartbeatTransitions });
    this.#listed = listed;
  }

  protected override get sliceMax(): number {
    return Math.min(heartbeatsPerCall, this.heartbeats.room);
  }

  protected override openFrame(bytes: Buffer): SlicedFrame<FrameSlice> {
    return new HeartbeatFrame(bytes, this.#worker);
  }

  protected override takeSlice(slice: FrameSlice): void {
    this.heartbeats.take(slice, slice.weight);
    const speaker = slice.heartbeats[0]?.workerId;
    if (speaker !== undefined) this.#listed.heard(speaker);
  }

  protected override onFrameRead(frame: SlicedFrame<FrameSlice>): void {
    if (frame.heartbeats === 0 && frame.owners === 0) this.heartbeats.answerEmptyFrame();
  }

  protected override close(): void {
    this.#listed.close();
  }
}

/** Both ends of a heartbeat stream for tests: an engine that answers when it is told to, and a client. */
import { once } from 'node:events';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import {
  type ClientDuplexStream,
  type ClientOptions,
  credentials,
  Client as GrpcClient,
} from '@grpc/grpc-js';
import {
  LeasesService,
  type LeaseVerdict,
  type StreamHeartbeatsRequest_HeartbeatSchema,
  StreamHeartbeatsRequestSchema,
  type StreamHeartbeatsResponse,
  StreamHeartbeatsResponseSchema,
} from '../../gen/leasehold/v1/leases_pb.js';
import type { OwnerHeartbeat, OwnerVerdict } from '../../src/domain/files/file-lease.ts';
import type { Heartbeat as LeaseHeartbeat, Verdict } from '../../src/domain/leases/lease.ts';
import { type LeaseListener, LeaseSubscriptions } from '../../src/engine/leases/lease-subscriptions.ts';
import { KnownWorkers } from '../../src/engine/workers/known-workers.ts';
import { type HeartbeatEngine, streamHeartbeats } from '../../src/rpc/heartbeat-stream/session.ts';
import type { Binding } from '../../src/rpc/implementation.ts';

type Heartbeat = MessageInitShape<typeof StreamHeartbeatsRequest_HeartbeatSchema>;

export const frame = (heartbeats: readonly Heartbeat[]): Buffer =>
  Buffer.from(
    toBinary(
      StreamHeartbeatsRequestSchema,
      create(StreamHeartbeatsRequestSchema, { heartbeats: [...heartbeats] }),
    ),
  );

/** Heartbeats of one worker for these leases, as a frame. */
export const frameFor = (leaseIds: readonly string[]): Buffer =>
  frame(leaseIds.map((leaseId) => ({ leaseId, workerId: 'w' })));

/** Signs of life of these owners, beside heartbeats for these leases, as a frame. */
export const ownersFrame = (ownerIds: readonly string[], leaseIds: readonly string[] = []): Buffer =>
  Buffer.from(
    toBinary(
      StreamHeartbeatsRequestSchema,
      create(StreamHeartbeatsRequestSchema, {
        heartbeats: leaseIds.map((leaseId) => ({ leaseId, workerId: 'w' })),
        owners: ownerIds.map((ownerId) => ({ ownerId })),
      }),
    ),
  );

export const verdictsIn = (bytes: Uint8Array): LeaseVerdict[] =>
  fromBinary(StreamHeartbeatsResponseSchema, bytes).verdicts;

export const extended = (more: { cancelRequested?: boolean } = {}): Verdict => ({
  kind: 'extended',
  expiresAtMs: 1_700_000_060_000,
  ttlRemainingMs: 60_000,
  cancelRequested: false,
  ...more,
});

type Answer<Out = Verdict> = Out | Promise<Out>;

export const ownerExtended = (): OwnerVerdict => ({
  kind: 'extended',
  expiresAtMs: 1_700_000_060_000,
  ttlRemainingMs: 60_000,
  lostFiles: [],
});

/** A call that the engine was given, and that waits for the test to answer it. */
export interface Asked<In, Out = Verdict> {
  of: readonly In[];
  signal: AbortSignal | undefined;
  answered: boolean;
  answer(verdicts?: readonly Answer<Out>[]): void;
  fail(error: unknown): void;
}

export class ScriptedEngine implements HeartbeatEngine {
  readonly calls: Asked<LeaseHeartbeat>[] = [];
  readonly looks: Asked<string>[] = [];
  readonly owners: Asked<string, OwnerVerdict>[] = [];
  readonly leaseSubscriptions = new LeaseSubscriptions();
  readonly workers = new KnownWorkers();
  /** Extends every lease at once, from now on. */
  eager = false;
  draining = false;
  readonly leases = {
    subscribe: (listener: LeaseListener) => this.leaseSubscriptions.subscribe(listener),
    heartbeatEach: (beats: readonly LeaseHeartbeat[], signal?: AbortSignal) =>
      this.#ask(this.calls, beats, () => extended(), signal),
    verdictsOf: (leaseIds: readonly string[], signal?: AbortSignal) =>
      this.#ask(this.looks, leaseIds, () => extended(), signal) as Promise<readonly Verdict[]>,
  };

  readonly files = {
    heartbeatEach: (owners: readonly OwnerHeartbeat[], signal?: AbortSignal) =>
      this.#ask(
        this.owners,
        owners.map(({ ownerId }) => ownerId),
        ownerExtended,
        signal,
      ),
  };

  /** Heartbeats that wait for their verdict. */
  get open(): number {
    return this.calls.filter(({ answered }) => !answered).reduce((sum, { of }) => sum + of.length, 0);
  }

  get heard(): number {
    return this.calls.reduce((sum, { of }) => sum + of.length, 0);
  }

  /** Extends whatever waits. */
  answerAll(): void {
    for (const call of this.calls) if (!call.answered) call.answer();
  }

  #ask<In, Out>(
    asked: Asked<In, Out>[],
    of: readonly In[],
    eagerly: () => Out,
    signal?: AbortSignal,
  ): Promise<readonly Answer<Out>[]> {
    return new Promise((resolve, reject) => {
      const one: Asked<In, Out> = {
        of,
        signal,
        answered: false,
        answer: (verdicts = of.map(eagerly)) => {
          one.answered = true;
          resolve(verdicts);
        },
        fail: (error) => {
          one.answered = true;
          reject(error);
        },
      };
      asked.push(one);
      if (this.eager) one.answer();
    });
  }
}

/** A service whose other methods are never called. */
export function bindingOf(engine: ScriptedEngine): Binding {
  const others = LeasesService.methods.map(({ localName }) => [localName, () => Promise.reject(new Error())]);
  const implementation = { ...Object.fromEntries(others), ...streamHeartbeats(engine) };
  return { service: LeasesService, implementation };
}

export const heartbeatsPath = `/${LeasesService.typeName}/StreamHeartbeats`;

export interface Ended {
  code: number;
  details: string;
  metadata: { get(key: string): (string | Buffer)[] };
}

/** One stream, on a connection of its own. */
export class HeartbeatClient {
  readonly frames: StreamHeartbeatsResponse[] = [];
  readonly ended: Promise<Ended>;
  readonly call: ClientDuplexStream<Buffer, Buffer>;
  readonly #client: GrpcClient;
  hasHeaders = false;
  #heard = 0;

  constructor(address: string, options: ClientOptions & { timeoutMs?: number } = {}) {
    const { timeoutMs, ...channel } = options;
    this.#client = new GrpcClient(address, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.max_receive_message_length': -1,
      ...channel,
    });
    const same = (bytes: Buffer) => bytes;
    const deadline = timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
    this.call = this.#client.makeBidiStreamRequest(heartbeatsPath, same, same, deadline);
    this.call.on('data', (bytes: Buffer) => {
      const frame = fromBinary(StreamHeartbeatsResponseSchema, bytes);
      this.frames.push(frame);
      this.#heard += frame.verdicts.length;
    });
    this.call.on('metadata', () => {
      this.hasHeaders = true;
    });
    // The status tells the same.
    this.call.on('error', () => {});
    this.ended = new Promise((resolve) => this.call.on('status', resolve));
  }

  get verdicts(): LeaseVerdict[] {
    return this.frames.flatMap(({ verdicts }) => verdicts);
  }

  /** Sends a frame, and says whether there is room for more. */
  send(bytes: Buffer): boolean {
    return this.call.write(bytes);
  }

  end(): void {
    this.call.end();
  }

  async hears(count: number): Promise<LeaseVerdict[]> {
    const impatient = AbortSignal.timeout(10_000);
    while (this.#heard < count) await once(this.call, 'data', { signal: impatient });
    return this.verdicts;
  }

  close(): void {
    this.call.cancel();
    this.#client.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

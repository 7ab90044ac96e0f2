/** The client's end of a stream of work, for tests. */
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { type ClientDuplexStream, credentials, Client as GrpcClient } from '@grpc/grpc-js';
import { FinalStatus } from '../../gen/leasehold/v1/jobs_pb.js';
import {
  type LeaseGrant,
  LeasesService,
  type LeaseVerdict,
  type ReleaseVerdict,
  StreamWorkRequestSchema,
  type StreamWorkResponse,
  StreamWorkResponseSchema,
} from '../../gen/leasehold/v1/leases_pb.js';
import type { Ended } from './heartbeat-streams.ts';
import { eventually } from './server.ts';

type WorkRequest = MessageInitShape<typeof StreamWorkRequestSchema>;

export const workFrame = (request: WorkRequest): Buffer =>
  Buffer.from(toBinary(StreamWorkRequestSchema, create(StreamWorkRequestSchema, request)));

/** A job that went well, handed in with its token. */
export const doneWith = ({ lease }: LeaseGrant) => ({
  leaseId: lease?.leaseId ?? '',
  leaseToken: lease?.leaseToken ?? '',
  status: FinalStatus.SUCCEEDED,
});

export const idOf = ({ lease }: LeaseGrant): string => lease?.leaseId ?? '';
export const jobIdOf = ({ job }: LeaseGrant): string => job?.jobId ?? '';

/** One stream, on a connection of its own. */
export class WorkClient {
  readonly frames: StreamWorkResponse[] = [];
  readonly ended: Promise<Ended>;
  readonly call: ClientDuplexStream<Buffer, Buffer>;
  readonly workerId: string;
  readonly #client: GrpcClient;

  constructor(address: string, workerId = 'w') {
    this.workerId = workerId;
    this.#client = new GrpcClient(address, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.max_receive_message_length': -1,
    });
    const same = (bytes: Buffer) => bytes;
    this.call = this.#client.makeBidiStreamRequest(`/${LeasesService.typeName}/StreamWork`, same, same);
    this.call.on('data', (bytes: Buffer) => this.frames.push(fromBinary(StreamWorkResponseSchema, bytes)));
    // The status tells the same.
    this.call.on('error', () => {});
    this.ended = new Promise((resolve) => this.call.on('status', resolve));
  }

  get grants(): LeaseGrant[] {
    return this.frames.flatMap(({ grants }) => grants);
  }

  get verdicts(): LeaseVerdict[] {
    return this.frames.flatMap(({ verdicts }) => verdicts);
  }

  get answers(): ReleaseVerdict[] {
    return this.frames.flatMap(({ releases }) => releases);
  }

  send(request: WorkRequest): void {
    this.call.write(workFrame({ workerId: this.workerId, ...request }));
  }

  /** Asks for so many jobs more. */
  wants(jobs: number, kind: object = {}): void {
    this.send({ credits: [{ jobs, ...kind }] });
  }

  granted = (count: number): Promise<LeaseGrant[]> => this.#has(`${count} grants`, () => this.grants, count);
  answered = (count: number): Promise<ReleaseVerdict[]> =>
    this.#has(`${count} answers`, () => this.answers, count);
  told = (count: number): Promise<LeaseVerdict[]> =>
    this.#has(`${count} verdicts`, () => this.verdicts, count);

  #has<T>(what: string, look: () => T[], count: number): Promise<T[]> {
    return eventually(what, async () => (look().length >= count ? look() : undefined));
  }

  close(): void {
    this.call.cancel();
    this.#client.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

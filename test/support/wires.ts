/** JobsService over every wire that the server speaks, behind one client, so that one test can hold for all of them. */
import { Agent } from 'node:http';
import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { type Client, Code, ConnectError, createClient, type Transport } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from '@connectrpc/connect-node';
import {
  type CallOptions,
  credentials,
  Client as GrpcClient,
  Metadata,
  type ServiceError,
} from '@grpc/grpc-js';
import { expect } from 'chai';
import { ErrorInfoSchema } from '../../gen/google/rpc/error_details_pb.js';
import { StatusSchema } from '../../gen/google/rpc/status_pb.js';
import { Health, HealthCheckResponse_ServingStatus } from '../../gen/grpc/health/v1/health_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import type { TestServer } from './server.ts';

export type JobsClient = Client<typeof JobsService>;

export interface Connection {
  jobs: JobsClient;
  transport: Transport;
  close(): void;
}

/** What a call is made of, for tests that send what no client would. */
export const pathOf = (method: string): string => `/${JobsService.typeName}/${method}`;

/** A ConnectError from what grpc-js received, with the details of its trailer still as bytes. */
export function fromGrpc(error: ServiceError): ConnectError {
  const converted = new ConnectError(error.details, error.code as number as Code);
  const [bytes] = error.metadata.get('grpc-status-details-bin');
  if (!Buffer.isBuffer(bytes)) return converted;
  const status = fromBinary(StatusSchema, bytes);
  expect(status).to.include({ code: error.code, message: error.details });
  converted.details = status.details.map(({ typeUrl, value }) => ({
    type: typeUrl.replace(/^.*\//, ''),
    value,
  }));
  return converted;
}

/** A transport on the client of grpc-js itself. */
export function grpcJsTransport(client: GrpcClient): Transport {
  const encode =
    <I extends DescMessage>(schema: I) =>
    (message: MessageInitShape<I>) =>
      Buffer.from(toBinary(schema, create(schema, message)));
  const optionsOf = (timeoutMs?: number): CallOptions =>
    timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
  const path = (method: { parent: { typeName: string }; name: string }) =>
    `/${method.parent.typeName}/${method.name}`;
  return {
    unary: (method, signal, timeoutMs, _header, input) =>
      new Promise((resolve, reject) => {
        const call = client.makeUnaryRequest(
          path(method),
          encode(method.input),
          (bytes) => fromBinary(method.output, bytes),
          input,
          new Metadata(),
          optionsOf(timeoutMs),
          (error, message) => {
            if (error || !message) return reject(error ? fromGrpc(error) : new Error('no answer'));
            const [header, trailer] = [new Headers(), new Headers()];
            resolve({ stream: false, service: method.parent, method, header, trailer, message });
          },
        );
        signal?.addEventListener('abort', () => call.cancel(), { once: true });
      }),
    async stream(method, signal, timeoutMs, _header, input) {
      const first = await input[Symbol.asyncIterator]().next();
      const call = client.makeServerStreamRequest(
        path(method),
        encode(method.input),
        (bytes) => fromBinary(method.output, bytes),
        first.value,
        new Metadata(),
        optionsOf(timeoutMs),
      );
      signal?.addEventListener('abort', () => call.cancel(), { once: true });
      const messages = async function* () {
        try {
          yield* call;
        } catch (error) {
          throw fromGrpc(error as ServiceError);
        }
      };
      const [header, trailer] = [new Headers(), new Headers()];
      return { stream: true, service: method.parent, method, header, trailer, message: messages() };
    },
  };
}

const connection = (transport: Transport, close: () => void): Connection => ({
  jobs: createClient(JobsService, transport),
  transport,
  close,
});

function overHttp1(
  make: (options: { httpVersion: '1.1'; nodeOptions: { agent: Agent } }) => Transport,
): Connection {
  const agent = new Agent({ keepAlive: true });
  return connection(make({ httpVersion: '1.1', nodeOptions: { agent } }), () => agent.destroy());
}

export const wires: Record<string, (server: TestServer) => Connection> = {
  'gRPC, with the client of grpc-js': ({ grpc }) => {
    const client = new GrpcClient(grpc, credentials.createInsecure());
    return connection(grpcJsTransport(client), () => client.close());
  },
  'gRPC, with the client of Connect': ({ grpc }) => {
    const baseUrl = `http://${grpc}`;
    // The client refuses to hold more than 10 MB for a session unless told otherwise, and our limit is 16 MiB.
    const sessionManager = new Http2SessionManager(baseUrl, {}, { maxSessionMemory: 64 });
    return connection(createGrpcTransport({ baseUrl, sessionManager }), () => sessionManager.abort());
  },
  'Connect in JSON': ({ http: baseUrl }) =>
    overHttp1((options) => createConnectTransport({ baseUrl, useBinaryFormat: false, ...options })),
  'Connect in binary': ({ http: baseUrl }) =>
    overHttp1((options) => createConnectTransport({ baseUrl, useBinaryFormat: true, ...options })),
  'gRPC-Web': ({ http: baseUrl }) =>
    overHttp1((options) => createGrpcWebTransport({ baseUrl, useBinaryFormat: true, ...options })),
  'gRPC-Web in JSON': ({ http: baseUrl }) =>
    overHttp1((options) => createGrpcWebTransport({ baseUrl, useBinaryFormat: false, ...options })),
};

/** The error of a call that has to fail. */
export async function failure(call: Promise<unknown>): Promise<ConnectError> {
  const error = await call.then(
    (answer) => {
      throw new Error(`should have failed, and answered ${String(answer)}`);
    },
    (reason: unknown) => reason,
  );
  expect(error).to.be.instanceOf(ConnectError);
  return error as ConnectError;
}

/** An error as every one of ours has to be. Hands back the metadata of its ErrorInfo. */
export function expectRpcError(error: ConnectError, code: Code, reason: string): Record<string, string> {
  expect(Code[error.code], error.rawMessage).to.equal(Code[code]);
  expect(error.rawMessage).to.match(new RegExp(`^${reason}: .`));
  const [info, ...more] = error.findDetails(ErrorInfoSchema);
  expect(more).to.deep.equal([]);
  expect(info, 'an ErrorInfo').to.include({ reason, domain: 'leasehold' });
  return info?.metadata ?? {};
}

/** The health of a service at an address, over gRPC: `SERVING` or `NOT_SERVING`. */
export async function servingStatus(address: string, service: string): Promise<string> {
  const client = new GrpcClient(address, credentials.createInsecure());
  try {
    const { status } = await createClient(Health, grpcJsTransport(client)).check({ service });
    return HealthCheckResponse_ServingStatus[status];
  } finally {
    client.close();
  }
}

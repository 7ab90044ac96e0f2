/** Calls of a tenant over gRPC, Connect and REST whose answers are kept as the bytes that arrived. */
import { fromJson, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { type Client as GrpcClient, Metadata } from '@grpc/grpc-js';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { KeysService } from '../../gen/leasehold/v1/keys_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';

const services = [JobsService, LeasesService, StatsService, FileLeasesService, KeysService];
const methods = new Map(
  services.flatMap((service) => service.methods.map((method) => [`${service.name}/${method.name}`, method])),
);

export interface RpcCall {
  over: 'grpc' | 'connect';
  rpc: string;
  frames: readonly JsonObject[];
}

export interface RestCall {
  over: 'rest';
  method: string;
  path: string;
  body?: JsonObject;
}

export type Call = RpcCall | RestCall;

/** How long a stream without an end is read. */
const streamMs = 40;

const methodOf = (rpc: string) => {
  const method = methods.get(rpc);
  if (!method) throw new Error(`there is no ${rpc}`);
  return method;
};

const asIs = (value: Buffer) => value;

const bytesOf = (metadata: Metadata | undefined): string =>
  metadata === undefined ? '' : JSON.stringify(metadata.getMap());

export interface OpenStream {
  /** Everything that has arrived: metadata, frames, trailers, status. */
  text(): string;
  send(frame: JsonObject): void;
  /** Nothing more is sent. */
  finish(): void;
  close(): Promise<void>;
}

/** A gRPC call of any kind, as a stream of raw frames. */
export function openStream(
  client: GrpcClient,
  rpc: string,
  headers: Record<string, string>,
): OpenStream & { ended: Promise<void> } {
  const method = methodOf(rpc);
  const metadata = new Metadata();
  for (const [key, value] of Object.entries(headers)) metadata.set(key, value);
  const parts: string[] = [];
  const stream = client.makeBidiStreamRequest(
    `/${method.parent.typeName}/${method.name}`,
    asIs,
    asIs,
    metadata,
  );
  const ended = new Promise<void>((resolve) => {
    stream.on('metadata', (found: Metadata) => parts.push(bytesOf(found)));
    stream.on('data', (bytes: Buffer) => parts.push(bytes.toString('latin1')));
    stream.on('error', () => {});
    stream.on('status', ({ details, metadata: trailers }) => {
      parts.push(details, bytesOf(trailers));
      resolve();
    });
  });
  return {
    text: () => parts.join('\n'),
    send: (frame) => void stream.write(Buffer.from(toBinary(method.input, fromJson(method.input, frame)))),
    finish: () => void stream.end(),
    close: async () => {
      stream.cancel();
      await ended;
    },
    ended,
  };
}

async function overGrpc(
  client: GrpcClient,
  { rpc, frames }: RpcCall,
  headers: Record<string, string>,
): Promise<string> {
  const stream = openStream(client, rpc, headers);
  for (const frame of frames) stream.send(frame);
  stream.finish();
  if (methodOf(rpc).methodKind === 'unary') await stream.ended;
  else await Promise.race([stream.ended, new Promise((resolve) => setTimeout(resolve, streamMs))]);
  await stream.close();
  return stream.text();
}

async function read(response: Response, isEndless: boolean): Promise<string> {
  const head = JSON.stringify([...response.headers]);
  if (!isEndless) return `${head}\n${await response.text()}`;
  const reader = response.body?.getReader();
  const timer = setTimeout(() => void reader?.cancel(), streamMs);
  const parts = [head];
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    parts.push(Buffer.from(part.value).toString('latin1'));
  }
  clearTimeout(timer);
  return parts.join('\n');
}

const enveloped = (frame: JsonObject): Buffer => {
  const json = Buffer.from(JSON.stringify(frame));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(json.length, 1);
  return Buffer.concat([head, json]);
};

/** The answer with its headers and trailers, as text of one byte a character. */
export async function play(
  { http, client }: { http: string; client: GrpcClient },
  call: Call,
  headers: Record<string, string>,
): Promise<string> {
  if (call.over === 'grpc') return overGrpc(client, call, headers);
  if (call.over !== 'rest') {
    const method = methodOf(call.rpc);
    const isStream = method.methodKind !== 'unary';
    const response = await fetch(`${http}/${method.parent.typeName}/${method.name}`, {
      method: 'POST',
      headers: { ...headers, 'content-type': isStream ? 'application/connect+json' : 'application/json' },
      body: isStream ? Buffer.concat(call.frames.map(enveloped)) : JSON.stringify(call.frames[0]),
    });
    return read(response, isStream);
  }
  const { method, path, body } = call;
  const response = await fetch(`${http}${path}`, {
    method,
    headers: { ...headers, ...(body ? { 'content-type': 'application/json' } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  return read(response, false);
}

/**
 * The Connect and gRPC-Web face: the same implementations as `grpc.ts`, bound to a Connect router.
 *
 * A unary call in JSON is read here before Connect reads it. Left alone, Connect takes an enum word that does not exist
 * for one that was left out, and refuses what it cannot read without the details that our errors carry.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type DescMethod, fromJson, type JsonValue } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
  type ServiceImpl,
} from '@connectrpc/connect';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { DomainError } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Caller } from '../engine/context.ts';
import type { Log } from '../log.ts';
import { readBody } from '../rest/body.ts';
import { checkEnumWords } from './enum-words.ts';
import { toConnectError, unreadable } from './errors.ts';
import type { Binding } from './implementation.ts';

type AnyMethod = (request: unknown, caller: Caller) => unknown;

const peerKey = createContextKey('unknown', { description: "the caller's address" });

/** Takes the requests that are RPCs, and says whether it did. */
export type ConnectFace = (request: IncomingMessage, response: ServerResponse, path: string) => boolean;

export function createConnectFace(bindings: readonly Binding[], log: Log): ConnectFace {
  const router = createConnectRouter({
    acceptCompression: [compressionGzip, compressionBrotli],
    readMaxBytes: limits.frameBytes,
    maxTimeoutMs: 10 * 60 * 1000,
  });
  for (const binding of bindings) addService(router, binding, log);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  return (request, response, path) => {
    const handler = handlers.get(path);
    if (!handler) return false;
    handle(handler, request, response).catch((error: unknown) => {
      // The caller has gone, or the answer was under way when something broke: nobody is left to be told.
      log.debug('an answer could not be sent', { method: path, error });
      response.destroy();
    });
    return true;
  };
}

async function handle(
  handler: UniversalHandler,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let body: JsonValue | undefined;
  if (isUnaryJson(handler.method, request)) {
    try {
      body = await readMessage(handler.method, request);
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      refuse(response, toConnectError(error));
      return;
    }
  }
  const values = createContextValues().set(peerKey, request.socket.remoteAddress ?? 'unknown');
  const answer = await handler(universalRequestFromNodeRequest(request, response, body, values));
  await universalResponseToNodeResponse(answer, response);
}

const isUnaryJson = (method: DescMethod, { headers, method: verb }: IncomingMessage): boolean =>
  method.methodKind === 'unary' &&
  verb === 'POST' &&
  (headers['content-type'] ?? '').toLowerCase().startsWith('application/json') &&
  (headers['content-encoding'] ?? 'identity') === 'identity';

async function readMessage({ input }: DescMethod, request: IncomingMessage): Promise<JsonValue> {
  const body = (await readBody(request, limits.frameBytes)) as JsonValue;
  checkEnumWords(input, body, '');
  try {
    fromJson(input, body, { ignoreUnknownFields: true });
  } catch (error) {
    throw unreadable(error);
  }
  return body;
}

function refuse(response: ServerResponse, error: ConnectError): void {
  const text = JSON.stringify(errorToJson(error, undefined));
  const headers = {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    connection: 'close',
  };
  response.writeHead(codeToHttpStatus(error.code), headers).end(text);
}

function addService(router: ConnectRouter, { service, implementation }: Binding, log: Log): void {
  const methods = implementation as Record<string, AnyMethod>;
  const bound: Record<string, unknown> = {};
  for (const method of service.methods) {
    const work = methods[method.localName];
    if (!work) throw new Error(`${service.typeName}.${method.name} is not implemented`);
    const name = `${service.typeName}/${method.name}`;
    bound[method.localName] =
      method.methodKind === 'server_streaming' ? streaming(name, work, log) : unary(name, work, log);
  }
  router.service(service, bound as ServiceImpl<typeof service>);
}

const unary =
  (method: string, work: AnyMethod, log: Log) => async (request: unknown, context: HandlerContext) => {
    const caller = callerOf(context);
    try {
      return await work(request, caller);
    } catch (error) {
      throw toConnectError(lateOr(error, context), { log, method, signal: caller.signal });
    }
  };

const streaming = (method: string, work: AnyMethod, log: Log) =>
  async function* (request: unknown, context: HandlerContext) {
    const caller = callerOf(context);
    try {
      yield* work(request, caller) as AsyncIterable<unknown>;
    } catch (error) {
      throw toConnectError(lateOr(error, context), { log, method, signal: caller.signal });
    }
  };

const callerOf = (context: HandlerContext): Caller => ({
  peer: context.values.get(peerKey),
  signal: context.signal,
});

/** Connect fires the same signal for a deadline and for a caller who has gone; its reason tells which. */
function lateOr(error: unknown, { signal }: HandlerContext): unknown {
  const late =
    signal.aborted && signal.reason instanceof ConnectError && signal.reason.code === Code.DeadlineExceeded;
  return late ? new DomainError('deadline_exceeded', 'the deadline has passed', { cause: error }) : error;
}

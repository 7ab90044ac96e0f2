/** The Connect and gRPC-Web API: binds the implementations of `rpc/grpc/server.ts` to a Connect router. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type DescMethod, fromBinary, type JsonValue } from '@bufbuild/protobuf';
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
import {
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { anonymous, type Principal } from '../../domain/access/principal.ts';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { type Authenticator, openAuthenticator } from '../../engine/access/authenticator.ts';
import type { Caller } from '../../engine/context/engine-context.ts';
import type { ReceiveBudget } from '../../lib/http/receive-budget.ts';
import { compressFromBytes } from '../../lib/http/response.ts';
import type { Log } from '../../lib/log.ts';
import { noProxies, type TrustedProxies } from '../../lib/net/trusted-proxies.ts';
import { type CallMeter, type Carrier, headersOf, type RunningCall } from '../../telemetry/call-metrics.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { endCall } from '../call-outcome.ts';
import { toConnectError } from '../errors.ts';
import type { Binding } from '../implementation.ts';
import { EncodedMessage } from '../jobs/encode.ts';
import { refusalIn, tellingLast } from './refusals.ts';
import { bareJson, encodingOf, readChecked, refuse, wireOf, withoutEncoding } from './requests.ts';

type AnyMethod = (request: unknown, caller: Caller) => unknown;

/** Whether a call has reached its implementation. Connect refuses some calls before that. */
const arrivalKey = createContextKey({ reached: false });
const peerKey = createContextKey('unknown', { description: "the caller's address" });
const principalKey = createContextKey<Principal>(anonymous, { description: 'who calls' });

/**
 * Serves a request if it is an RPC, and returns whether it is. With a refusal it sends that and calls
 * nothing.
 */
export type ConnectHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
  principal: Principal,
  refusal?: DomainError,
) => boolean;

export interface ConnectOptions {
  bindings: readonly Binding[];
  metrics: Metrics;
  log: Log;
  receiving: ReceiveBudget;
  /** Ends streams whose credential does not count any more; by default none. */
  authenticator?: Authenticator;
  proxies?: TrustedProxies;
}

export function createConnectHandler({
  bindings,
  metrics,
  log,
  receiving,
  authenticator = openAuthenticator,
  proxies = noProxies,
}: ConnectOptions): ConnectHandler {
  const router = createConnectRouter({
    // HTTP/1.1 carries no gRPC. Connect would read its messages beyond the limits of `requests.ts`.
    grpc: false,
    // Gzip requests are decompressed before Connect reads them; see `requests.ts`.
    acceptCompression: [compressionGzip],
    compressMinBytes: compressFromBytes,
    readMaxBytes: limits.frameBytes,
    maxTimeoutMs: 10 * 60 * 1000,
    jsonOptions: { ignoreUnknownFields: true },
  });
  for (const binding of bindings) addService(router, binding, metrics, log, authenticator);
  const bidirectional = new Map(
    bindings
      .flatMap(({ service }) => service.methods.filter(isBidirectional).map(pathOf))
      .map((path) => [path, metrics.rpc('http', path.slice(1))]),
  );
  const handlers = new Map(
    router.handlers.map((handler): [string, Metered] => {
      const meter = metrics.rpc('http', handler.requestPath.slice(1));
      return [handler.requestPath, { handler, meter, receiving, proxies }];
    }),
  );
  return (request, response, path, principal, refusal) => {
    const handler = handlers.get(path);
    const stream = bidirectional.get(path);
    const meter = stream ?? handler?.meter;
    if (!meter) return false;
    const problem = refusal ?? (stream && streamRefusal(path));
    if (problem) {
      refuse(request, response, wireOf(request) ?? bareJson, problem);
      endCall(meter.begin(headersOf(request)), toConnectError(problem).code);
      return true;
    }
    if (!handler) return false;
    handle(handler, request, response, principal).catch((error: unknown) => {
      // The caller has disconnected, or sending failed after the answer had begun: no error can reach the
      // caller.
      log.debug('an answer could not be sent', { method: path, error });
      response.destroy();
    });
    return true;
  };
}

/** A method's handler, the meter of its calls, and the budget of its messages. */
interface Metered {
  handler: UniversalHandler;
  meter: CallMeter;
  receiving: ReceiveBudget;
  proxies: TrustedProxies;
}

const isBidirectional = (method: DescMethod): boolean => method.methodKind === 'bidi_streaming';

const pathOf = (method: DescMethod): string => `/${method.parent.typeName}/${method.name}`;

/**
 * On a bidirectional stream, answers and requests pass each other, which HTTP/1.1 does not allow and gRPC-Web
 * does not know. The refusal comes at once: a client that goes on sending would otherwise wait for ever.
 */
function streamRefusal(path: string): DomainError {
  const words = `${path.slice(1)} is a stream in both directions, which this port cannot carry; call it over gRPC`;
  return new DomainError('method_not_allowed', words);
}

async function handle(
  { handler, meter, receiving, proxies }: Metered,
  request: IncomingMessage,
  response: ServerResponse,
  principal: Principal,
): Promise<void> {
  const wire = wireOf(request);
  let body: Buffer | undefined;
  try {
    if (wire && encodingOf(wire, request))
      body = await readChecked(handler.method.input, wire, request, receiving);
  } catch (error) {
    if (!wire || !(error instanceof DomainError)) throw error;
    refuse(request, response, wire, error);
    endCall(meter.begin(headersOf(request)), toConnectError(error).code);
    return;
  }
  const arrival = { reached: false };
  const values = createContextValues()
    .set(peerKey, proxies.peerOf(request))
    .set(principalKey, principal)
    .set(arrivalKey, arrival);
  const universal = universalRequestFromNodeRequest(
    request,
    response,
    undefined as unknown as JsonValue,
    values,
  );
  const checked =
    wire && body
      ? { ...universal, header: withoutEncoding(wire, universal.header), body: once(body) }
      : universal;
  const answer = await handler(checked);
  if (arrival.reached) return universalResponseToNodeResponse(answer, response);
  // A stream reaches its implementation only while its answer is read.
  const answered = tellingLast(answer.body, (last) => {
    if (!arrival.reached) endCall(meter.begin(headersOf(request)), refusalIn(last));
  });
  await universalResponseToNodeResponse({ ...answer, body: answered }, response);
}

/** Presents bytes that have been read as the stream that Connect expects. */
async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function addService(
  router: ConnectRouter,
  { service, implementation }: Binding,
  metrics: Metrics,
  log: Log,
  authenticator: Authenticator,
): void {
  const methods = implementation as Record<string, AnyMethod>;
  const bound: Record<string, unknown> = {};
  for (const method of service.methods) {
    if (isBidirectional(method)) continue;
    const work = methods[method.localName];
    if (!work) throw new Error(`${service.typeName}.${method.name} is not implemented`);
    const name = `${service.typeName}/${method.name}`;
    const parts: Handled = { name, work, meter: metrics.rpc('http', name), log };
    bound[method.localName] =
      method.methodKind === 'server_streaming' ? streaming(parts, authenticator) : unary(method, parts);
  }
  router.service(service, bound as ServiceImpl<typeof service>);
}

interface Handled {
  name: string;
  work: AnyMethod;
  meter: CallMeter;
  log: Log;
}

const unary =
  (method: DescMethod, { name, work, meter, log }: Handled) =>
  async (request: unknown, context: HandlerContext) => {
    context.values.get(arrivalKey).reached = true;
    const running = meter.begin(carrierIn(context));
    const caller = callerOf(context, name, running);
    try {
      const response = await running.run(() => work(request, caller));
      const message =
        response instanceof EncodedMessage ? fromBinary(method.output, response.bytes) : response;
      running.end('OK');
      return message;
    } catch (error) {
      const answered = toConnectError(lateOr(error, context), { log, method: name, signal: caller.signal });
      endCall(running, answered.code);
      throw answered;
    }
  };

const streaming = ({ name, work, meter, log }: Handled, authenticator: Authenticator) =>
  async function* (request: unknown, context: HandlerContext) {
    context.values.get(arrivalKey).reached = true;
    const running = meter.begin(carrierIn(context));
    const ended = new AbortController();
    const usual = callerOf(context, name, running);
    const caller = { ...usual, signal: AbortSignal.any([context.signal, ended.signal]) };
    let unfollow = () => {};
    try {
      unfollow = authenticator.follow(caller.principal, (error) => ended.abort(error));
      for await (const message of work(request, caller) as AsyncIterable<unknown>) {
        if (ended.signal.aborted) throw ended.signal.reason;
        meter.sent?.add();
        yield message;
      }
      running.end('OK');
    } catch (error) {
      const answered = toConnectError(lateOr(error, context), { log, method: name, signal: caller.signal });
      endCall(running, answered.code);
      throw answered;
    } finally {
      unfollow();
      // If the client disconnects, the generator ends without an error.
      endCall(running, Code.Canceled);
    }
  };

const carrierIn =
  ({ requestHeader }: HandlerContext): Carrier =>
  (name) =>
    requestHeader.get(name) ?? undefined;

const callerOf = (context: HandlerContext, method: string, { traceId }: RunningCall): Caller => ({
  peer: context.values.get(peerKey),
  principal: context.values.get(principalKey),
  method,
  traceId,
  signal: context.signal,
});

/**
 * Connect aborts the same signal for a passed deadline and for a disconnected caller; the reason
 * distinguishes them.
 */
function lateOr(error: unknown, { signal }: HandlerContext): unknown {
  const late =
    signal.aborted && signal.reason instanceof ConnectError && signal.reason.code === Code.DeadlineExceeded;
  return late ? new DomainError('deadline_exceeded', 'the deadline has passed', { cause: error }) : error;
}

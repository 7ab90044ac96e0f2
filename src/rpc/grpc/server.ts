/**
 * The gRPC API: binds implementations to a `@grpc/grpc-js` server, beside health and reflection.
 *
 * Requests are decoded without throwing: grpc-js would answer a message it cannot read with INTERNAL,
 * although the caller made the mistake. Statuses carry their details in the trailer from which all gRPC
 * clients read them.
 */
import { create, type DescMethod, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  type handleServerStreamingCall,
  type handleUnaryCall,
  type MethodDefinition,
  Server,
  ServerCredentials,
  type ServerInterceptingCall,
  type ServerInterceptor,
  type ServiceDefinition,
  setLogger,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import type { Address } from '../../config.ts';
import { accessOfRpc } from '../../domain/access/methods.ts';
import type { Access } from '../../domain/access/roles.ts';
import type { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { type Authenticator, openAuthenticator } from '../../engine/access/authenticator.ts';
import type { Caller } from '../../engine/context/engine-context.ts';
import type { HealthMonitor } from '../../engine/maintenance/health-monitor.ts';
import { WaitGroup } from '../../lib/async/wait-group.ts';
import type { ReceiveBudget } from '../../lib/http/receive-budget.ts';
import type { Log } from '../../lib/log.ts';
import type { TlsFiles } from '../../lib/net/tls-files.ts';
import type { CallMeter } from '../../telemetry/call-metrics.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { endGone } from '../call-outcome.ts';
import { toConnectError, unreadable } from '../errors.ts';
import type { Binding, OpenStream } from '../implementation.ts';
import { EncodedMessage } from '../jobs/encode.ts';
import { admit } from './admission.ts';
import { callerOf, drained } from './caller.ts';
import { ConnectionConduct } from './conduct.ts';
import { ConnectionAges, connectionIsOld, innerCallOf } from './connection-age.ts';
import { FrameCall, type FrameMethod } from './frame-call.ts';
import { HealthService, healthBytesMax, healthPath } from './health.ts';
import { replaceSessionStreams } from './http2-stream-map.ts';
import { boundHeaders, type GrpcBounds, watchListeners } from './listeners.ts';
import { boundMessages, boundReceiving } from './receiving.ts';
import { reflectionOf } from './reflection.ts';
import { countRefusals, onRefusal } from './refusals.ts';
import { listenSecurely, type SecurePort } from './secure-listener.ts';
import { carrierOf, endWithError, sendError, statusOf } from './status.ts';
import { stopServer } from './stop.ts';

export interface GrpcOptions {
  bindings: readonly Binding[];
  health: HealthMonitor;
  metrics: Metrics;
  log: Log;
  receiving: ReceiveBudget;
  /** Finds out who calls; by default every caller may do everything. */
  authenticator?: Authenticator;
  /** The certificates; without them the port is plain. */
  tls?: TlsFiles | undefined;
  /** By default only idle connections end. */
  bounds?: GrpcBounds;
  /** Whether the server describes its services to clients. */
  hasReflection?: boolean;
}

export interface GrpcServer {
  listen(address: Address): Promise<Address>;
  /** Accepts no new calls, lets running ones finish for `patienceMs`, then ends them. */
  stop(patienceMs: number): Promise<void>;
}

type Unreadable = { unreadable: DomainError };
type AnyMethod = (request: unknown, caller: Caller) => unknown;

export function createGrpcServer({
  bindings,
  health,
  metrics,
  log,
  receiving,
  authenticator = openAuthenticator,
  tls,
  bounds: { connections, idleS, ageS, times } = { idleS: 300, ageS: 0 },
  hasReflection = true,
}: GrpcOptions): GrpcServer {
  const toLog = (...words: unknown[]) => log.debug('grpc-js', { words: words.map(String).join(' ') });
  setLogger({ error: toLog, info: toLog, debug: toLog });
  replaceSessionStreams();
  const frameMethods = new Map<string, FrameMethod>();
  const meters = new Map<string, CallMeter>();
  const calls = new WaitGroup();
  const ages = new ConnectionAges(ageS, times);
  const conduct = new ConnectionConduct(connections);
  const wiring: Wiring = {
    frameMethods,
    meters,
    calls,
    metrics,
    log,
    receiving,
    authenticator,
    ages,
    conduct,
  };
  const server = new Server({
    interceptors: [interceptor(wiring)],
    'grpc.max_receive_message_length': limits.frameBytes,
    'grpc.max_send_message_length': 2 * limits.frameBytes,
    'grpc.max_concurrent_streams': 1_000,
    'grpc.keepalive_time_ms': 30_000,
    'grpc.keepalive_timeout_ms': 10_000,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc.max_connection_idle_ms': idleS * 1_000,
  });
  boundHeaders(server);
  for (const binding of bindings) addService(server, binding, wiring);
  const status = new HealthService(bindings.map(({ service }) => service.typeName));
  health.onReady((isReady) => status.setReady(isReady));
  status.addToServer(server);
  if (hasReflection) reflectionOf(bindings).addToServer(server);
  let secure: SecurePort | undefined;
  return {
    listen: ({ host, port }) =>
      new Promise((resolve, reject) => {
        const target = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
        if (tls) {
          listenSecurely(server, { host, port }, { tls, log, connections }).then((opened) => {
            watchListeners(server, { ages, connections: undefined, log });
            secure = opened;
            resolve({ host, port: opened.port });
          }, reject);
          return;
        }
        server.bindAsync(target, ServerCredentials.createInsecure(), (error, bound) => {
          if (error)
            reject(new Error(`gRPC cannot listen on ${target} (LEASEHOLD_GRPC_ADDR): ${error.message}`));
          else {
            watchListeners(server, { ages, connections, log });
            resolve({ host, port: bound });
          }
        });
      }),
    stop: (patienceMs) => {
      secure?.close();
      return stopServer(server, calls, patienceMs);
    },
  };
}

interface Wiring {
  /** The methods by their paths. */
  frameMethods: Map<string, FrameMethod>;
  meters: Map<string, CallMeter>;
  calls: WaitGroup;
  metrics: Metrics;
  log: Log;
  receiving: ReceiveBudget;
  authenticator: Authenticator;
  ages: ConnectionAges;
  conduct: ConnectionConduct;
}

/** Takes over the calls of frame streams. Other calls pass unchanged, because wrapping a call costs time. */
const interceptor =
  ({
    frameMethods,
    meters,
    calls,
    log,
    receiving,
    authenticator,
    ages,
    conduct,
  }: Wiring): ServerInterceptor =>
  ({ path }, call) => {
    const method = frameMethods.get(path);
    const meter = meters.get(path);
    boundReceiving(call, receiving, meter !== undefined);
    if (path.startsWith(healthPath)) boundMessages(call, healthBytesMax);
    admit(call, accessOfPath(path), authenticator, path);
    if (method) return new FrameCall(call, method, { calls, log, authenticator, ages, conduct });
    if (meter) countRefusals(call, meter);
    else onRefusal(call, () => {});
    // grpc-js uses nothing beyond the interface.
    return call as ServerInterceptingCall;
  };

/** Orchestrators ask for the health without a credential; reflection describes the API to any caller. */
const accessOfPath = (path: string): Access => {
  if (path.startsWith(healthPath)) return 'open';
  return path.startsWith('/grpc.reflection.') ? 'any' : accessOfRpc(path.slice(1));
};

function addService(
  server: Server,
  { service, implementation }: Binding,
  { frameMethods, meters, calls, metrics, log, authenticator, ages, conduct }: Wiring,
): void {
  const definition: Record<string, MethodDefinition<unknown, unknown>> = {};
  const handlers: UntypedServiceImplementation = {};
  const methods = implementation as Record<string, AnyMethod>;
  for (const method of service.methods) {
    const work = methods[method.localName];
    if (!work) throw new Error(`${service.typeName}.${method.name} is not implemented`);
    const name = `${service.typeName}/${method.name}`;
    const meter = metrics.rpc('grpc', name);
    if (method.methodKind === 'bidi_streaming') {
      frameMethods.set(`/${name}`, { name, open: work as OpenStream, meter });
      definition[method.localName] = {
        ...definitionOf(method),
        requestDeserialize: asIs,
        responseSerialize: asIs,
      };
      // The interceptor takes over the call before this handler.
      handlers[method.localName] = () => {};
      continue;
    }
    meters.set(`/${name}`, meter);
    definition[method.localName] = definitionOf(method);
    handlers[method.localName] =
      method.methodKind === 'server_streaming'
        ? counted(calls, streamingHandler({ name, work, meter, log, conduct }, authenticator, ages))
        : counted(calls, unaryHandler({ name, work, meter, log, conduct }));
  }
  server.addService(definition as ServiceDefinition, handlers);
}

/** Counts a call as open until its handler settles, which is when the call is answered or has failed. */
const counted =
  <Call extends unknown[]>(calls: WaitGroup, handle: (...call: Call) => unknown) =>
  async (...call: Call): Promise<void> => {
    calls.add();
    try {
      await handle(...call);
    } finally {
      calls.done();
    }
  };

const asIs = (bytes: unknown): Buffer => bytes as Buffer;

function definitionOf(method: DescMethod): MethodDefinition<unknown, unknown> {
  const decode = (bytes: Buffer): unknown => {
    try {
      return fromBinary(method.input, bytes);
    } catch (error) {
      return { unreadable: unreadable(error) } satisfies Unreadable;
    }
  };
  const encode = (message: unknown): Buffer => {
    if (message instanceof EncodedMessage) return message.bytes;
    const bytes = toBinary(method.output, create(method.output, message as Record<string, unknown>));
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming',
    responseStream: method.methodKind === 'server_streaming' || method.methodKind === 'bidi_streaming',
    requestDeserialize: decode,
    responseSerialize: encode,
    // The server never encodes requests or decodes responses, but the type requires both.
    requestSerialize: () => Buffer.alloc(0),
    responseDeserialize: () => undefined,
  };
}

interface Handled {
  name: string;
  work: AnyMethod;
  meter: CallMeter;
  log: Log;
  conduct: ConnectionConduct;
}

function unaryHandler({ name, work, meter, log, conduct }: Handled): handleUnaryCall<unknown, unknown> {
  return async (call, callback) => {
    const running = meter.begin(carrierOf(call.metadata));
    const caller = callerOf(call, name, running, conduct);
    try {
      const response = await running.run(() => work(readable(call.request), caller));
      caller.answered = true;
      callback(null, response);
      running.end('OK');
    } catch (error) {
      caller.answered = true;
      const status = () => statusOf(toConnectError(error, { log, method: name, signal: caller.signal }));
      sendError(endWithError(running, callback), status, log);
    }
  };
}

function streamingHandler(
  { name, work, meter, log, conduct }: Handled,
  authenticator: Authenticator,
  ages: ConnectionAges,
): handleServerStreamingCall<unknown, unknown> {
  return async (call) => {
    const running = meter.begin(carrierOf(call.metadata));
    const caller = callerOf(call, name, running, conduct);
    let unfollow = () => {};
    const part = ages.join(innerCallOf(call), {
      leave: () => {},
      end: () => caller.abort(connectionIsOld()),
    });
    try {
      unfollow = authenticator.follow(caller.principal, caller.abort);
      for await (const message of work(readable(call.request), caller) as AsyncIterable<unknown>) {
        if (caller.signal.aborted) {
          if (caller.endsBecause) throw caller.endsBecause;
          endGone(running, caller.signal);
          return;
        }
        meter.sent?.add();
        if (!call.write(message)) await drained(call, caller.signal);
      }
      caller.answered = true;
      call.end();
      running.end('OK');
    } catch (error) {
      caller.answered = true;
      const status = () => statusOf(toConnectError(error, { log, method: name, signal: caller.signal }));
      const tell = endWithError(running, (one) => call.emit('error', one));
      sendError(tell, status, log);
    } finally {
      unfollow();
      part();
    }
  };
}

function readable(request: unknown): unknown {
  if (typeof request === 'object' && request !== null && 'unreadable' in request) {
    throw (request as Unreadable).unreadable;
  }
  return request;
}

/**
 * What every listener of the gRPC server gets beside what grpc-js does: limits, ages, and a handler of
 * errors.
 */
import { EventEmitter } from 'node:events';
import type { Http2Server, ServerHttp2Session } from 'node:http2';
import type { Server } from '@grpc/grpc-js';
import type { Log } from '../../lib/log.ts';
import type { AgeTimes } from '../../lib/net/connection-age.ts';
import type { Connections } from '../../lib/net/connections.ts';
import type { ConnectionAges } from './connection-age.ts';

/** Bounds of connections. */
export interface GrpcBounds {
  /** Refuses connections that are too many. */
  connections?: Connections | undefined;
  idleS: number;
  /** 0 is never. */
  ageS: number;
  times?: AgeTimes;
}

/** As much as the HTTP port takes, and twice what gRPC clients send by default. */
const headerListBytesMax = 16_384;

/**
 * grpc-js handles errors of a listener only until it is bound. A connection that cannot be accepted is
 * such an error, and an error without a handler would end the process.
 */
export function watchListeners(
  server: Server,
  { ages, connections, log }: { ages: ConnectionAges; connections: Connections | undefined; log: Log },
): void {
  for (const listener of listenersOf(server)) {
    listener.on('session', (session: ServerHttp2Session) => ages.follow(session));
    listener.on('error', (error) => log.warn('failed to accept a gRPC connection', { error }));
    connections?.guard(listener, 'grpc');
  }
}

/** Only this property gives access to the listeners. */
function listenersOf(server: Server): Http2Server[] {
  const listeners: unknown = Reflect.get(server, 'http2Servers');
  if (!(listeners instanceof Map) || listeners.size === 0)
    throw new Error('this version of grpc-js keeps its listeners elsewhere');
  return [...listeners.keys()].map((listener: unknown) => {
    if (!(listener instanceof EventEmitter)) throw new Error('a listener of grpc-js is no EventEmitter');
    return listener as Http2Server;
  });
}

/** grpc-js passes on neither the bound of header lists nor others; this property has what it passes. */
export function boundHeaders(server: Server): void {
  const options: unknown = Reflect.get(server, 'commonServerOptions');
  if (typeof options !== 'object' || options === null)
    throw new Error('this version of grpc-js keeps its HTTP/2 options elsewhere');
  const { settings } = options as { settings?: object };
  Object.assign(options, { settings: { ...settings, maxHeaderListSize: headerListBytesMax } });
}

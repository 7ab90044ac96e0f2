/**
 * The HTTP face: one `node:http` server. REST routes come first; everything else goes to Connect, which also speaks
 * gRPC-Web; what nobody knows is a 404 in the contracts' own shape.
 *
 * `listen` starts it; `stop` accepts nothing new, lets requests finish for a while, then closes their connections.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Address } from '../config.ts';
import { DomainError } from '../domain/errors.ts';
import type { Caller } from '../engine/context.ts';
import type { Log } from '../log.ts';
import type { ConnectFace } from '../rpc/connect.ts';
import { type CallMeter, headersOf } from '../telemetry/calls.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { errorResponse, type RestResponse } from './errors.ts';
import { type Match, type Route, Router, serve } from './router.ts';

/** Requests that a connection may send ahead of their answers. Who sends more does not read what it asks for. */
const aheadMax = 100;

export interface HttpOptions {
  routes: readonly Route[];
  connect: ConnectFace;
  metrics: Metrics;
  log: Log;
}

export class HttpServer {
  readonly #server: Server;
  readonly #log: Log;
  readonly #router: Router;
  readonly #connect: ConnectFace;
  readonly #meters: ReadonlyMap<Route, CallMeter>;
  /** Of requests that belong to no route. */
  readonly #lost: CallMeter;
  readonly #sockets = new Map<Socket, number>();
  #stopping = false;

  constructor({ routes, connect, metrics, log }: HttpOptions) {
    this.#log = log;
    this.#meters = new Map(routes.map((route) => [route, metrics.route(route.method, route.path)]));
    this.#lost = metrics.route('other', 'other');
    this.#router = new Router(routes);
    this.#connect = connect;
    this.#server = createServer({ requestTimeout: 60_000, headersTimeout: 20_000, keepAliveTimeout: 65_000 });
    this.#server.on('connection', (socket) => this.#follow(socket));
    this.#server.on('request', (request, response) => {
      this.#occupy(request, response);
      this.#handle(request, response);
    });
    this.#server.on('clientError', (error, socket) => {
      log.debug('a request could not be read', { error });
      if (socket.writable) socket.end(unreadableRequest(error));
    });
  }

  listen({ host, port }: Address): Promise<Address> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', (error) =>
        reject(new Error(`HTTP cannot listen on ${host}:${port} (LEASEHOLD_HTTP_ADDR): ${error.message}`)),
      );
      this.#server.listen({ host, port }, () => {
        resolve({ host, port: (this.#server.address() as AddressInfo).port });
      });
    });
  }

  stop(patienceMs: number): Promise<void> {
    this.#stopping = true;
    return new Promise((resolve) => {
      const force = setTimeout(() => this.#server.closeAllConnections(), patienceMs);
      this.#server.close(() => {
        clearTimeout(force);
        resolve();
      });
      // Node ends neither a connection that never sent a request nor one whose request is answered after this.
      for (const [socket, requests] of this.#sockets) if (requests === 0) socket.destroy();
    });
  }

  /** Knows how many requests each connection waits for, so that idle ones do not hold up the end. */
  #follow(socket: Socket): void {
    this.#sockets.set(socket, 0);
    socket.once('close', () => this.#sockets.delete(socket));
  }

  #occupy({ socket }: IncomingMessage, response: ServerResponse): void {
    const waiting = (this.#sockets.get(socket) ?? 0) + 1;
    this.#sockets.set(socket, waiting);
    if (waiting > aheadMax) socket.destroy();
    response.once('close', () => {
      const left = (this.#sockets.get(socket) ?? 1) - 1;
      if (this.#sockets.has(socket)) this.#sockets.set(socket, left);
      if (this.#stopping && left === 0) socket.end();
    });
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const path = pathOf(request);
    try {
      const match = this.#router.find(request.method ?? 'GET', path);
      if (match) void this.#rest(match, request, response);
      else if (!this.#connect(request, response, path)) throw unknownPath(request, path);
    } catch (error) {
      const refused = errorResponse(error, this.#log, path);
      send(request, response, refused);
      this.#lost.begin(headersOf(request)).end(String(refused.status));
    }
  }

  async #rest(match: Match, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => {
      if (!response.writableFinished) gone.abort(new DomainError('canceled', 'the caller has gone'));
    });
    const caller: Caller = { peer: peerOf(request), signal: gone.signal };
    const route = `${match.route.method} ${match.route.path}`;
    const running = (this.#meters.get(match.route) ?? this.#lost).begin(headersOf(request));
    let answer: RestResponse;
    try {
      answer = await running.run(() => serve(match, request, caller));
      send(request, response, answer);
    } catch (error) {
      const refused = errorResponse(error, this.#log, route, gone.signal);
      const { refusal } = match.route;
      answer = refusal ? { ...refused, body: refusal(refused.body) } : refused;
      send(request, response, answer);
    }
    running.end(String(answer.status), answer.status >= 500);
  }
}

const unknownPath = ({ method }: IncomingMessage, path: string) =>
  new DomainError('not_found', `there is no ${method} ${path}`);

function send(
  request: IncomingMessage,
  response: ServerResponse,
  { status, body, headers }: RestResponse,
): void {
  if (response.destroyed || response.headersSent) return;
  // What is left of a refused body is not read; the connection cannot be used again.
  const unread = request.complete ? {} : { connection: 'close' };
  if (body === undefined) {
    response.writeHead(status, { ...headers, ...unread }).end();
    return;
  }
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  response
    .writeHead(status, {
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(text),
      'cache-control': 'no-store',
      ...headers,
      ...unread,
    })
    .end(request.method === 'HEAD' ? undefined : text);
}

/** The path of a request line, which may also be a whole address. */
function pathOf({ url = '/' }: IncomingMessage): string {
  const start = url.startsWith('/') ? 0 : Math.max(url.indexOf('/', url.indexOf('://') + 3), 0);
  const mark = url.indexOf('?', start);
  return mark < 0 ? url.slice(start) : url.slice(start, mark);
}

const peerOf = ({ socket }: IncomingMessage): string => socket.remoteAddress ?? 'unknown';

/** The answer to what Node's own parser refuses, which is before there is a request to answer. */
function unreadableRequest(error: Error & { code?: string }): string {
  const status =
    error.code === 'HPE_HEADER_OVERFLOW' ? '431 Request Header Fields Too Large' : '400 Bad Request';
  const detail = `request: is not HTTP that can be read (${error.code ?? error.message})`;
  const body = JSON.stringify({ detail, code: 'invalid_request', field: 'request' });
  const headers = `content-type: application/json; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}`;
  return `HTTP/1.1 ${status}\r\n${headers}\r\nconnection: close\r\n\r\n${body}`;
}

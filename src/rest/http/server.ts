/**
 * The HTTP server: one `node:http` server. REST routes come first. Every other path goes to Connect, which
 * also speaks gRPC-Web. An unknown path is a 404 in the contracts' format.
 *
 * Lifecycle: `listen` starts it. `stop` accepts no new requests, lets running ones finish for a while, then
 * closes their connections.
 */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Address } from '../../config.ts';
import { accessOfRoute, accessOfRpc, isRpc } from '../../domain/access/methods.ts';
import { anonymous, localPrincipal, type Principal } from '../../domain/access/principal.ts';
import type { Access } from '../../domain/access/roles.ts';
import { DomainError } from '../../domain/errors.ts';
import { requireAccess } from '../../engine/access/access-control.ts';
import { type Authenticator, openAuthenticator } from '../../engine/access/authenticator.ts';
import type { Caller } from '../../engine/context/engine-context.ts';
import { type ReceiveBudget, receiveMsMax } from '../../lib/http/receive-budget.ts';
import { type RestResponse, send } from '../../lib/http/response.ts';
import type { Log } from '../../lib/log.ts';
import type { Connections } from '../../lib/net/connections.ts';
import { peerCertificateOf } from '../../lib/net/peer-certificate.ts';
import type { TlsFiles } from '../../lib/net/tls-files.ts';
import { noProxies, type TrustedProxies } from '../../lib/net/trusted-proxies.ts';
import type { ConnectHandler } from '../../rpc/connect/handler.ts';
import { type CallMeter, headersOf, traceIdIn } from '../../telemetry/call-metrics.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { BrowserGuard, type BrowserGuardOptions } from './browser-guard.ts';
import { HttpConnections } from './connections.ts';
import { Cors } from './cors.ts';
import { errorResponse } from './errors.ts';
import { MethodNotAllowed } from './method-not-allowed.ts';
import { plainAnswer, unreadableRequest } from './plain-answer.ts';
import { type Match, type Route, Router, serve } from './router.ts';
import { SessionCookies } from './session-cookies.ts';

/** How long a TLS handshake may take. */
const handshakeMs = 10_000;
/** How long the headers of a request may take, and how often Node looks for late ones. */
const headersMs = 10_000;
const lookMs = 5_000;
/** Header fields of one request. */
const headersMax = 100;

/** Bounds of connections. */
export interface ConnectionBounds {
  /** Refuses connections that are too many. */
  connections?: Connections | undefined;
  idleS: number;
  /** 0 is never. */
  ageS: number;
}

export interface HttpOptions {
  routes: readonly Route[];
  connect: ConnectHandler;
  metrics: Metrics;
  log: Log;
  guard: BrowserGuardOptions;
  /** The budget of REST bodies. */
  receiving: ReceiveBudget;
  /** Finds out who calls; by default every caller may do everything. */
  authenticator?: Authenticator;
  /** The certificates; without them the port is plain. */
  tls?: TlsFiles | undefined;
  bounds: ConnectionBounds;
  proxies?: TrustedProxies;
  /** The name of the port in metrics, and the setting of its address. */
  name?: { port: string; variable: string };
}

export class HttpServer {
  readonly #server: Server;
  readonly #log: Log;
  readonly #router: Router;
  readonly #connect: ConnectHandler;
  readonly #guard: BrowserGuard;
  readonly #cors: Cors;
  readonly #cookies: SessionCookies;
  readonly #receiving: ReceiveBudget;
  readonly #authenticator: Authenticator;
  readonly #meters: ReadonlyMap<Route, CallMeter>;
  /** Counts requests that match no route. */
  readonly #lost: CallMeter;
  readonly #connections: HttpConnections;
  readonly #proxies: TrustedProxies;
  readonly #variable: string;

  constructor({
    routes,
    connect,
    metrics,
    log,
    guard,
    receiving,
    authenticator = openAuthenticator,
    tls,
    bounds,
    proxies = noProxies,
    name = { port: 'http', variable: 'LEASEHOLD_HTTP_ADDR' },
  }: HttpOptions) {
    this.#connections = new HttpConnections(bounds.ageS);
    this.#proxies = proxies;
    this.#variable = name.variable;
    this.#authenticator = authenticator;
    this.#log = log;
    this.#meters = new Map(routes.map((route) => [route, metrics.route(route.method, route.path)]));
    this.#lost = metrics.route('other', 'other');
    this.#router = new Router(routes);
    this.#connect = connect;
    this.#guard = new BrowserGuard(guard);
    this.#cors = new Cors(guard.allowedOrigins ?? []);
    this.#cookies = new SessionCookies(tls !== undefined);
    this.#receiving = receiving;
    const server = {
      // The receive budget bounds the bodies that are kept in memory, and ends slow ones before this timeout
      // does.
      requestTimeout: receiveMsMax,
      headersTimeout: headersMs,
      connectionsCheckingInterval: lookMs,
      keepAliveTimeout: bounds.idleS * 1_000,
      // The guard checks Host and answers in JSON; Node's own check would not.
      requireHostHeader: false,
    };
    this.#server = tls ? createSecureServer(server, tls) : createServer(server);
    this.#server.maxHeadersCount = headersMax;
    if (tls) this.#server.on('connection', (socket) => this.#connections.followHandshake(socket));
    this.#server.on(tls ? 'secureConnection' : 'connection', (socket) => this.#connections.follow(socket));
    bounds.connections?.guard(this.#server, name.port);
    this.#server.on('request', (request, response) => this.#accept(request, response));
    // By default Node lets the client send its body before the guard has checked the request.
    this.#server.on('checkContinue', (request, response) => this.#accept(request, response, true));
    // HTTP allows the server to ignore an unknown expectation; Node would answer 417 without a body.
    this.#server.on('checkExpectation', (request, response) => this.#accept(request, response));
    this.#server.on('connect', (request, socket) => this.#refuseTunnel(request, socket));
    this.#server.on('clientError', (error, socket) => {
      log.debug('a request could not be read', { error });
      if (socket.writable) socket.end(unreadableRequest(error));
    });
  }

  listen({ host, port }: Address): Promise<Address> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', (error) =>
        reject(new Error(`HTTP cannot listen on ${host}:${port} (${this.#variable}): ${error.message}`)),
      );
      this.#server.listen({ host, port }, () => {
        // A failed accept is an error event of the server. Without a listener it would end the process.
        this.#server.on('error', (error) => this.#log.warn('failed to accept a connection', { error }));
        const bound = this.#server.address() as AddressInfo;
        this.#guard.boundTo(bound.address);
        resolve({ host, port: bound.port });
      });
    });
  }

  stop(patienceMs: number): Promise<void> {
    return new Promise((resolve) => {
      const force = setTimeout(() => this.#connections.destroyAll(), patienceMs);
      this.#server.close(() => {
        clearTimeout(force);
        resolve();
      });
      this.#connections.stop();
    });
  }

  #accept(request: IncomingMessage, response: ServerResponse, expectsContinue = false): void {
    this.#connections.occupy(request.socket, response);
    const path = pathOf(request);
    let known = anonymous;
    const admit = (principal: Principal) => {
      known = principal;
      if (this.#authenticator.isOn) requireAccess(principal, this.#accessOf(request, path));
      if (expectsContinue) response.writeContinue();
      this.#handle(request, response, path, principal);
    };
    const refuse = (error: unknown) => {
      this.#note(error, request, path, known);
      this.#refuse(error, request, response, path);
    };
    try {
      this.#cors.begin(request, response);
      this.#guard.check(request, path);
      if (this.#cors.answersPreflight(request, response)) {
        this.#lost.begin(headersOf(request)).end('204');
        return;
      }
      const found = this.#authenticate(request, path);
      if (found instanceof Promise) found.then(admit).catch(refuse);
      else admit(found);
    } catch (error) {
      refuse(error);
    }
  }

  /** Unknown paths have no place in the audit: they may contain anything. */
  #note(error: unknown, request: IncomingMessage, path: string, principal: Principal): void {
    const route = this.#routeOf(request, path);
    const rpc = isRpc(path.slice(1)) ? path.slice(1) : 'other';
    const method = route ? `${route.method} ${route.path}` : rpc;
    const traceId = traceIdIn(headersOf(request));
    this.#authenticator.refusals.note(
      { principal, peer: this.#proxies.peerOf(request), method, traceId },
      error,
    );
  }

  #authenticate(request: IncomingMessage, path: string): Principal | Promise<Principal> {
    if (!this.#authenticator.isOn) return localPrincipal;
    if (this.#accessOf(request, path) === 'open') return anonymous;
    const { socket, headers } = request;
    const certificate = this.#authenticator.takesCertificates
      ? peerCertificateOf(socket, () => socket)
      : undefined;
    return this.#authenticator.authenticate({
      authorization: headers.authorization,
      session: headers.cookie === undefined ? undefined : this.#cookies.sessionIn(headers),
      certificate,
      peer: this.#proxies.peerOf(request),
    });
  }

  /** An unknown path needs a credential too, so that the paths of a server are not found by trying. */
  #accessOf(request: IncomingMessage, path: string): Access {
    const route = this.#routeOf(request, path);
    if (route) return accessOfRoute(route.method, route.path);
    return isRpc(path.slice(1)) ? accessOfRpc(path.slice(1)) : 'any';
  }

  #handle(request: IncomingMessage, response: ServerResponse, path: string, principal: Principal): void {
    try {
      const match = this.#router.find(request.method ?? 'GET', path);
      if (match) void this.#rest(match, request, response, principal);
      else if (!this.#connect(request, response, path, principal)) throw unknownPath(request, path);
    } catch (error) {
      const refused = errorResponse(error, this.#log, path);
      send(request, response, refused);
      this.#lost.begin(headersOf(request)).end(String(refused.status));
    }
  }

  /**
   * Answers a request that the guard rejects, in the format that the client expects for the path. Nothing is
   * executed.
   */
  #refuse(error: unknown, request: IncomingMessage, response: ServerResponse, path: string): void {
    if (error instanceof DomainError && this.#connect(request, response, path, anonymous, error)) return;
    const refused = errorResponse(error, this.#log, path);
    const route = this.#routeOf(request, path);
    const answer = route?.refusal ? { ...refused, body: route.refusal(refused.body) } : refused;
    send(request, response, answer);
    const meter = (route && this.#meters.get(route)) ?? this.#lost;
    meter.begin(headersOf(request)).end(String(answer.status), answer.status >= 500);
  }

  #routeOf({ method = 'GET' }: IncomingMessage, path: string): Route | undefined {
    try {
      return this.#router.find(method, path)?.route;
    } catch (error) {
      if (error instanceof DomainError) return undefined;
      throw error;
    }
  }

  #refuseTunnel(request: IncomingMessage, socket: Duplex): void {
    // Node has removed its own listeners, and an error without a listener would end the process.
    socket.on('error', (error) => this.#log.debug('a connection broke', { error }));
    const allowed = 'GET, HEAD, POST, PUT, DELETE';
    const refusal = new MethodNotAllowed(`CONNECT is not served here; it takes ${allowed}`, allowed);
    const { status, body, headers } = errorResponse(refusal, this.#log, 'CONNECT');
    socket.end(plainAnswer('405 Method Not Allowed', body, headers));
    this.#lost.begin(headersOf(request)).end(String(status));
  }

  async #rest(
    match: Match,
    request: IncomingMessage,
    response: ServerResponse,
    principal: Principal,
  ): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => {
      if (!response.writableFinished) gone.abort(new DomainError('canceled', 'the caller has gone'));
    });
    const route = `${match.route.method} ${match.route.path}`;
    const running = (this.#meters.get(match.route) ?? this.#lost).begin(headersOf(request));
    const { traceId } = running;
    const caller: Caller = {
      peer: this.#proxies.peerOf(request),
      principal,
      method: route,
      traceId,
      signal: gone.signal,
    };
    let answer: RestResponse;
    try {
      answer = await running.run(() => serve(match, request, caller, this.#receiving));
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

function createSecureServer(options: ServerOptions, tls: TlsFiles): Server {
  const server = createHttpsServer({ ...options, ...tls.material, handshakeTimeout: handshakeMs });
  tls.onChange((material) => server.setSecureContext(material));
  return server;
}

const unknownPath = ({ method }: IncomingMessage, path: string) =>
  new DomainError('not_found', `there is no ${method} ${path}`);

/** The path of a request target, which may also be an absolute URL. */
function pathOf({ url = '/' }: IncomingMessage): string {
  const start = url.startsWith('/') ? 0 : Math.max(url.indexOf('/', url.indexOf('://') + 3), 0);
  const mark = url.indexOf('?', start);
  return mark < 0 ? url.slice(start) : url.slice(start, mark);
}

/**
 * Rejects requests that a web page of another site can make a browser send to this server.
 *
 * - DNS rebinding: a page's host name is changed to resolve to this server, so that the browser treats both
 *   as one origin. Such a request names the page's host. The guard accepts only allowed hosts: loopback
 *   names, the addresses that the server is bound to, and `LEASEHOLD_ALLOWED_HOSTS`. A server that is bound
 *   to more than loopback also accepts every IP address, because rebinding needs a name.
 * - Cross-site writes: a page may send simple requests to any address without a preflight. Browsers mark them
 *   with `Sec-Fetch-Site`, and older browsers with `Origin`. Other programs send neither. Pages of origins in
 *   `LEASEHOLD_ALLOWED_ORIGINS` may write.
 *
 * The guard runs before routing and before a body is read. This port speaks HTTP/1.1 only, so there is no
 * `:authority`.
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { DomainError, invalid, printable } from '../../domain/errors.ts';
import { isLoopback } from '../../lib/net/loopback.ts';

/** Orchestrators send probes with a host of their own; the answers contain nothing to protect. */
const openPaths: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

export const isOpenToAnyHost = (path: string): boolean => openPaths.has(path);

/** Accepted hosts are cached as they were sent, so that a usual request costs one lookup. */
const rememberedMax = 64;

export interface BrowserGuardOptions {
  /** The host of the bind setting: a name or an address. */
  boundHost: string;
  /** Exact names, `*.suffix` or `*`, in lower case. */
  allowedHosts: readonly string[];
  /** Exact origins, as browsers send them; by default none. */
  allowedOrigins?: readonly string[];
}

export class BrowserGuard {
  readonly #exact: Set<string>;
  readonly #suffixes: readonly string[];
  readonly #allowsAll: boolean;
  readonly #origins: ReadonlySet<string>;
  readonly #remembered = new Set<string>();
  #allowsAddresses = false;

  constructor({ boundHost, allowedHosts, allowedOrigins = [] }: BrowserGuardOptions) {
    this.#origins = new Set(allowedOrigins);
    this.#exact = new Set([boundHost.toLowerCase(), ...allowedHosts]);
    // Names below .localhost cannot be registered, so no page of another site can have one.
    this.#suffixes = ['.localhost', ...allowedHosts.filter(isWildcard).map((host) => host.slice(1))];
    this.#allowsAll = allowedHosts.includes('*');
  }

  /** Adds the address that the server listens on. It is known only after `listen`. */
  boundTo(address: string): void {
    this.#exact.add(address.toLowerCase());
    this.#allowsAddresses = !isLoopback(address);
  }

  /** Throws if the request must not be served. */
  check(request: IncomingMessage, path: string): void {
    const { headers, httpVersion } = request;
    if (headers.host === undefined && httpVersion === '1.1')
      throw invalid('host', 'a request of HTTP/1.1 must have the header Host');
    const host = authorityOf(request.url) ?? headers.host ?? '';
    if (!isOpenToAnyHost(path)) {
      this.#checkHost(host);
      // An absolute request target has precedence. A different `Host` must be allowed too.
      if (headers.host !== undefined && headers.host !== host) this.#checkHost(headers.host);
    }
    if (isSafe(request.method) || this.#origins.has(headers.origin ?? '')) return;
    checkOrigin(headers, host);
  }

  #checkHost(host: string): void {
    if (this.#allowsAll || this.#remembered.has(host)) return;
    if (!this.#isAllowed(host)) {
      throw new DomainError(
        'host_not_allowed',
        `host ${printable(host)} is not allowed; a name that clients use must be in LEASEHOLD_ALLOWED_HOSTS`,
        { field: 'host' },
      );
    }
    if (this.#remembered.size < rememberedMax) this.#remembered.add(host);
  }

  #isAllowed(host: string): boolean {
    const name = nameIn(host);
    if (name === undefined) return false;
    if (name === 'localhost' || isLoopback(name) || this.#exact.has(name)) return true;
    if (this.#allowsAddresses && isIP(name) !== 0) return true;
    return this.#suffixes.some((suffix) => name.endsWith(suffix) && name.length > suffix.length);
  }
}

const isWildcard = (host: string): boolean => host.startsWith('*.');

/**
 * The name in `name:port`, in lower case, without the brackets of an IPv6 address and the final dot of a
 * rooted name.
 */
export function nameIn(host: string): string | undefined {
  const [, address, name] = /^(?:\[([0-9a-f:.]+)\]|([\w.-]+?)\.?)(?::\d{0,5})?$/i.exec(host) ?? [];
  if (address !== undefined && isIP(address) !== 6) return undefined;
  return (address ?? name)?.toLowerCase();
}

/** The authority of an absolute request target, as clients send it to a proxy. */
const authorityOf = (target = '/'): string | undefined =>
  target.startsWith('/') ? undefined : /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(target)?.[1];

const isSafe = (method = 'GET'): boolean => method === 'GET' || method === 'HEAD' || method === 'OPTIONS';

/** Throws if a web page of another origin made the browser send the request. */
export function checkOrigin(headers: IncomingHttpHeaders, host: string): void {
  const site = headers['sec-fetch-site'];
  const { origin } = headers;
  if (site === undefined ? isOwn(origin, host) : site === 'same-origin' || site === 'none') return;
  const page = origin === undefined ? 'another origin' : `origin ${printable(origin)}`;
  throw new DomainError('origin_not_allowed', `a web page of ${page} must not write here`, {
    field: 'origin',
  });
}

/**
 * Whether a page of the server's own origin made the browser send the request. Only a browser proves that, so
 * a request of another program is none.
 */
export function isSameOrigin(headers: IncomingHttpHeaders): boolean {
  const { host, origin } = headers;
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin';
  return origin !== undefined && host !== undefined && isOwn(origin, host);
}

/** Schemes are not compared: a proxy may terminate TLS in front of this server. */
const isOwn = (origin: string | undefined, host: string): boolean =>
  origin === undefined || (/^https?:\/\/(.*)$/i.exec(origin)?.[1] ?? '').toLowerCase() === host.toLowerCase();

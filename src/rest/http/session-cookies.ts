/**
 * The cookie that carries the id of a session.
 *
 * Guarantees: scripts cannot read the cookie, and browsers send it over TLS alone, to this host alone, and
 * never with a request that another site began. It counts only for a request of the server's own pages. The
 * prefix `__Host-` needs TLS, so that the name has no prefix on plain loopback. On all other hosts the name
 * without the prefix never counts: a page of a neighbouring host could plant such a session.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { isSessionId } from '../../domain/access/session.ts';
import { isLoopback } from '../../lib/net/loopback.ts';
import { isSameOrigin, nameIn } from './browser-guard.ts';

export const sessionCookieName = '__Host-leasehold';

export class SessionCookies {
  readonly #hasTls: boolean;

  constructor(hasTls: boolean) {
    this.#hasTls = hasTls;
  }

  /** The id of the session, if a page of the server's own origin sent it. */
  sessionIn(headers: IncomingHttpHeaders): string | undefined {
    if (!isSameOrigin(headers)) return undefined;
    const id = cookieIn(headers.cookie, this.#nameFor(headers));
    return id !== undefined && isSessionId(id) ? id : undefined;
  }

  /** The header `set-cookie` of a login. */
  begin(headers: IncomingHttpHeaders, id: string, ttlMs: number): string {
    return this.#cookie(headers, id, Math.floor(ttlMs / 1_000));
  }

  /** The header `set-cookie` of a logout. */
  end(headers: IncomingHttpHeaders): string {
    return this.#cookie(headers, '', 0);
  }

  #cookie(headers: IncomingHttpHeaders, value: string, maxAgeS: number): string {
    const secure = this.#isSecure(headers) ? '; Secure' : '';
    const name = this.#nameFor(headers);
    return `${name}=${value}; Path=/; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict${secure}`;
  }

  #nameFor(headers: IncomingHttpHeaders): string {
    return this.#isSecure(headers) ? sessionCookieName : sessionCookieName.replace('__Host-', '');
  }

  /** Without TLS and beyond loopback a proxy ends TLS, or browsers do not take the cookie. */
  #isSecure({ host = '' }: IncomingHttpHeaders): boolean {
    if (this.#hasTls) return true;
    const name = nameIn(host) ?? '';
    return !(name === 'localhost' || name.endsWith('.localhost') || isLoopback(name));
  }
}

/** The value of a cookie. Browsers send the most specific one first. */
export function cookieIn(header: string | undefined, name: string): string | undefined {
  for (const pair of (header ?? '').split(';')) {
    const mark = pair.indexOf('=');
    if (mark > 0 && pair.slice(0, mark).trim() === name) return pair.slice(mark + 1).trim();
  }
  return undefined;
}

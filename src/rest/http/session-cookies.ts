/**
 * The cookie that carries the id of a session.
 *
 * Guarantees: scripts cannot read the cookie, and browsers send it over TLS alone, to this host alone, and
 * never with a request that another site began. It counts only for a request of the server's own pages. The
 * prefix `__Host-` needs TLS, so that the name has no prefix on plain loopback. On all other hosts the name
 * without the prefix never counts: a page of a neighbouring host could plant such a session.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { isSessionId, pendingLoginMs } from '../../domain/access/session.ts';
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

  /**
   * What the browser keeps while its user is at the identity provider. The way back begins at the provider's
   * site, where a strict cookie would stay behind.
   */
  beginLogin(headers: IncomingHttpHeaders, pending: string): string {
    return this.#cookie(headers, pending, pendingLoginMs / 1_000, 'Lax');
  }

  endLogin(headers: IncomingHttpHeaders): string {
    return this.#cookie(headers, '', 0, 'Lax');
  }

  pendingLoginIn(headers: IncomingHttpHeaders): string | undefined {
    return cookieIn(headers.cookie, this.#nameFor(headers, 'Lax'));
  }

  #cookie(
    headers: IncomingHttpHeaders,
    value: string,
    maxAgeS: number,
    sameSite: 'Strict' | 'Lax' = 'Strict',
  ): string {
    const secure = this.#isSecure(headers) ? '; Secure' : '';
    const name = this.#nameFor(headers, sameSite);
    return `${name}=${value}; Path=/; Max-Age=${maxAgeS}; HttpOnly; SameSite=${sameSite}${secure}`;
  }

  #nameFor(headers: IncomingHttpHeaders, sameSite: 'Strict' | 'Lax' = 'Strict'): string {
    const name = sameSite === 'Strict' ? sessionCookieName : `${sessionCookieName}-login`;
    return this.#isSecure(headers) ? name : name.replace('__Host-', '');
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

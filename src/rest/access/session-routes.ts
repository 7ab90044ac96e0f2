/** Sessions of browsers: a key is exchanged for a cookie. */
import { sessionIdleMs } from '../../domain/access/session.ts';
import { DomainError } from '../../domain/errors.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Sessions } from '../../engine/access/sessions.ts';
import { checkOrigin } from '../http/browser-guard.ts';
import type { Route } from '../http/router.ts';
import type { SessionCookies } from '../http/session-cookies.ts';
import { sessionAbout } from './session-docs.ts';
import { sessionBody } from './session-schemas.ts';

const path = '/api/access/session';

/** Without authentication there are no sessions, and the routes say so. */
export const sessionRoutes = (sessions: Sessions | undefined, cookies: SessionCookies): Route[] => [
  {
    method: 'POST',
    path,
    about: sessionAbout.beginSession,
    // Callers without a credential send it, and must not fill the budget of unfinished requests.
    bodyBytesMax: 64 * 1_024,
    async handle({ body, headers, caller }) {
      // Pages of allowed origins may call the server, but not log in here on behalf of its pages.
      checkOrigin(headers, headers.host ?? '');
      const { key } = parse.beginSession(body);
      if (!sessions)
        throw new DomainError('illegal_transition', 'this server needs no login: it has no authentication');
      const { id, principal, session } = await sessions.loginWithKey(key, caller, cookies.sessionIn(headers));
      const ttlMs = session.expiresAtMs - session.createdAtMs;
      return {
        status: 201,
        headers: { 'set-cookie': cookies.begin(headers, id, ttlMs) },
        body: sessionBody(principal, session, sessionIdleMs),
      };
    },
  },
  {
    method: 'GET',
    path,
    about: sessionAbout.getSession,
    async handle({ caller: { principal } }) {
      const session = sessions?.sessionOf(principal);
      if (!session) throw noSession();
      return { status: 200, body: sessionBody(principal, session, sessionIdleMs) };
    },
  },
  {
    method: 'DELETE',
    path,
    about: sessionAbout.endSession,
    async handle({ headers, caller }) {
      if (caller.principal.kind !== 'session' || !sessions) throw noSession();
      await sessions.logout(caller);
      return {
        status: 204,
        headers: { 'set-cookie': cookies.end(headers), 'cache-control': 'no-store' },
      };
    },
  },
];

const noSession = (): DomainError =>
  new DomainError('not_found', 'the caller has no session: it sends another credential, or needs none');

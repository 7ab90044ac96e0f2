/** Logins of users of an identity provider: the browser goes to the provider, and comes back with a code. */
import { DomainError } from '../../domain/errors.ts';
import type { ProviderLogin } from '../../engine/access/identities/open-provider.ts';
import type { Sessions } from '../../engine/access/sessions.ts';
import type { Route } from '../http/router.ts';
import type { SessionCookies } from '../http/session-cookies.ts';
import { sessionAbout } from './session-docs.ts';

/** Where every login ends. No part of a request can choose another place. */
const afterLogin = '/';

export const loginRoutes = (
  sessions: Sessions | undefined,
  provider: ProviderLogin | undefined,
  cookies: SessionCookies,
): Route[] => [
  {
    method: 'GET',
    path: '/api/access/login',
    about: sessionAbout.beginLogin,
    async handle({ headers }) {
      if (!provider) throw noProvider();
      const { url, pending } = await provider.begin();
      const cookie = cookies.beginLogin(headers, pending);
      return { status: 302, headers: { location: url, 'set-cookie': cookie, 'cache-control': 'no-store' } };
    },
  },
  {
    method: 'GET',
    path: '/api/access/callback',
    about: sessionAbout.endLogin,
    async handle({ query, headers, caller }) {
      if (!provider || !sessions) throw noProvider();
      const pending = cookies.pendingLoginIn(headers);
      const { id, session } = await sessions.loginWithProvider(
        () => provider.finish(query.toString(), pending),
        caller,
      );
      const ttlMs = session.expiresAtMs - session.createdAtMs;
      return {
        status: 303,
        headers: {
          location: afterLogin,
          'set-cookie': [cookies.begin(headers, id, ttlMs), cookies.endLogin(headers)],
          'cache-control': 'no-store',
        },
      };
    },
  },
];

const noProvider = (): DomainError =>
  new DomainError('not_found', 'no identity provider is configured for logins');

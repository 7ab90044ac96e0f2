import { BeginSession } from '../../domain/requests/access.ts';
import { answer, nothing, operations, requestBody } from '../openapi/operation.ts';
import { SessionBody } from './session-schemas.ts';

const session = {
  identity: {
    kind: 'session' as const,
    id: '0aB1cD2eF3gH',
    name: 'ops',
    roles: ['operator' as const],
    scopes: { addon_ids: ['*'], streams: ['*'], job_types: ['*'], repositories: ['*'] },
    worker_ids: ['ops*'],
    sees_payloads: false,
    expires_at: '2026-11-19T20:00:00.000Z',
    permissions: ['jobs.read', 'jobs.cancel'],
  },
  created_at: '2026-11-19T08:00:00.000Z',
  expires_at: '2026-11-19T20:00:00.000Z',
  idle_timeout_s: 3_600,
};

/** Documentation of sessions. */
export const sessionAbout = operations('Access', {
  beginSession: {
    summary: 'Log in: exchange a key for a session',
    details:
      'The answer sets a cookie, `__Host-leasehold`, or `leasehold` on plain loopback. The cookie counts ' +
      'for requests of pages of this server alone. The session has the rights of the key and ends with it. ' +
      'Only pages of this server may log in.',
    body: requestBody(BeginSession, { key: 'lhk_7kQ2mZr41xPa_…' }),
    answers: { 201: answer('The session, and its cookie.', SessionBody, session) },
    errors: ['unauthenticated', 'illegal_transition', 'rate_limited'],
  },
  beginLogin: {
    summary: 'Log in at the identity provider',
    details:
      'The browser is sent to the identity provider, and comes back to `/api/access/callback`. A cookie ' +
      'ties both steps to this browser for ten minutes.',
    answers: { 302: nothing('The way to the identity provider.') },
    errors: ['not_found'],
  },
  endLogin: {
    summary: 'Come back from the identity provider',
    details:
      'The query is that of the provider. The answer sets the cookie of a session, whose rights the access ' +
      'rules give, and always leads to `/`.',
    answers: { 303: nothing('The session has begun.') },
    errors: ['not_found', 'unauthenticated', 'permission_denied', 'rate_limited'],
  },
  getSession: {
    summary: 'Read the session of the caller',
    answers: { 200: answer('The session.', SessionBody, session) },
    errors: ['not_found'],
  },
  endSession: {
    summary: 'Log out',
    details:
      'The session ends on every server within `LEASEHOLD_AUTH_REFRESH_S`. The answer removes the cookie.',
    answers: { 204: nothing('The session has ended.') },
    errors: ['not_found'],
  },
});

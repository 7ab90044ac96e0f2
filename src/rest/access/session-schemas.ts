import type { Static } from 'typebox';
import type { Principal } from '../../domain/access/principal.ts';
import type { Session } from '../../domain/access/session.ts';
import { entity, time, whole } from '../openapi/schema-types.ts';
import { IdentityBody, identityBody } from './schemas.ts';

export const SessionBody = entity('Session', 'A login in a browser.', {
  identity: IdentityBody,
  created_at: time('When it began.'),
  expires_at: time('When it ends at the latest.'),
  idle_timeout_s: whole('It ends after so many seconds without a request.'),
});

export const sessionBody = (
  principal: Principal,
  { createdAtMs, expiresAtMs }: Session,
  idleMs: number,
): Static<typeof SessionBody> => ({
  identity: identityBody(principal),
  created_at: new Date(createdAtMs).toISOString(),
  expires_at: new Date(expiresAtMs).toISOString(),
  idle_timeout_s: idleMs / 1_000,
});

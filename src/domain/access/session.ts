import { createHash, randomBytes } from 'node:crypto';

/**
 * A login in a browser, as it is stored. The browser has the id, 256 random bits; the database has only a
 * hash of it.
 */
export interface Session {
  hash: string;
  /** The key that the session was begun with, or the name of the identity. */
  principalId: string;
  /** What the identity provider says of the user; null for a session of a key. */
  identity: ProvidedIdentity | null;
  createdAtMs: number;
  createdFrom: string;
  expiresAtMs: number;
  lastUsedAtMs: number;
}

/** A user of an identity provider. The access rules turn it into rights. */
export interface ProvidedIdentity {
  issuer: string;
  subject: string;
  claims: Readonly<Record<string, unknown>>;
}

/** A login at the identity provider that does not count. The reason is for the audit. */
export class LoginRefusedError extends Error {
  override readonly name = 'LoginRefusedError';
}

/** How long a user may take to log in at the identity provider. */
export const pendingLoginMs = 600_000;

/** How long a session may be unused. */
export const sessionIdleMs = 3_600_000;

export const newSessionId = (): string => randomBytes(32).toString('base64url');

export const isSessionId = (text: string): boolean => /^[\w-]{43}$/.test(text);

export const hashOfSession = (id: string): string => createHash('sha256').update(id).digest('hex');

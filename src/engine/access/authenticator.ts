/**
 * Finds the principal behind a call, from what the call carries. Every API uses it before it reads a message.
 *
 * Guarantees: one text for every refusal, so that a caller cannot find out which part was wrong; the log has
 * the reason, and never the credential. An address that fails too often is answered `rate_limited`. Without
 * authentication every caller is the local principal.
 */

import { parseKey } from '../../domain/access/key-text.ts';
import { localPrincipal, type Principal } from '../../domain/access/principal.ts';
import { DomainError } from '../../domain/errors.ts';
import { createLog, type Log } from '../../lib/log.ts';
import { noRefusals, type Refusals, UnauthenticatedError } from './audit/refusals.ts';
import type { FailedAttempts } from './failed-attempts.ts';
import type { KeyRefusal, KeyRing } from './key-ring.ts';
import type { Sessions } from './sessions.ts';
import type { StreamCounts } from './stream-counts.ts';

/** What a call carries of its caller. */
export interface Credentials {
  /** The header `authorization`. */
  authorization: string | undefined;
  /** The id of a session, from the cookie of a request of the server's own pages. */
  session?: string | undefined;
  peer: string;
}

/** Verifies tokens of another issuer. Answers at once for a token that it has seen before. */
export interface TokenVerifier {
  verify(token: string): Principal | Promise<Principal>;
}

export interface AuthenticatorOptions {
  keys: KeyRing | undefined;
  tokens: TokenVerifier | undefined;
  sessions?: Sessions | undefined;
  /** Limits calls without a valid credential; without it they are not limited. */
  failedAttempts?: FailedAttempts | undefined;
  /** Limits the open streams of a credential; without it they are not limited. */
  streamCounts?: StreamCounts | undefined;
  /** Records refused calls; by default none. */
  refusals?: Refusals;
  log: Log;
}

/** A stream that ends with its principal. */
interface Follower {
  principal: Principal;
  end(error: DomainError): void;
}

export class Authenticator {
  readonly #keys: KeyRing | undefined;
  readonly #tokens: TokenVerifier | undefined;
  readonly #sessions: Sessions | undefined;
  readonly #failedAttempts: FailedAttempts | undefined;
  readonly #streamCounts: StreamCounts | undefined;
  readonly log: Log;
  readonly refusals: Refusals;
  readonly #followers = new Set<Follower>();

  constructor({
    keys,
    tokens,
    sessions,
    failedAttempts,
    streamCounts,
    refusals = noRefusals,
    log,
  }: AuthenticatorOptions) {
    this.#keys = keys;
    this.#tokens = tokens;
    this.#sessions = sessions;
    this.#failedAttempts = failedAttempts;
    this.#streamCounts = streamCounts;
    this.log = log;
    this.refusals = refusals;
    keys?.onRound(() => this.#endFollowers());
    sessions?.onRound(() => this.#endFollowers());
  }

  /** Whether calls need a credential. */
  get isOn(): boolean {
    return this.#keys !== undefined || this.#tokens !== undefined;
  }

  /**
   * Follows a stream. Calls `end` once when its principal does not count any more: its key is revoked, or it
   * has expired. Returns what ends that. Throws `quota_exceeded` if the credential has too many streams.
   */
  follow(principal: Principal, end: (error: DomainError) => void): () => void {
    if (!this.isOn || principal.kind === 'local') return () => {};
    const close = this.#streamCounts?.open(principal);
    const follower = { principal, end };
    this.#followers.add(follower);
    return () => {
      this.#followers.delete(follower);
      close?.();
    };
  }

  #endFollowers(): void {
    const now = Date.now();
    for (const follower of this.#followers) {
      if (this.#isInForce(follower.principal, now)) continue;
      this.#followers.delete(follower);
      follower.end(new UnauthenticatedError('no longer in force'));
    }
  }

  #isInForce(principal: Principal, now: number): boolean {
    const { kind, expiresAtMs } = principal;
    if (kind === 'key') return this.#keys?.isInForce(principal) ?? false;
    if (kind === 'session') return this.#sessions?.isInForce(principal) ?? false;
    return expiresAtMs === null || expiresAtMs > now;
  }

  /** Throws `unauthenticated`, at once or with the promise. A bearer counts before a session. */
  authenticate({ authorization, session, peer }: Credentials): Principal | Promise<Principal> {
    if (!this.isOn) return localPrincipal;
    if (authorization === undefined && session !== undefined && this.#sessions)
      return this.#bySession(this.#sessions.find(session), peer);
    const token = bearerIn(authorization);
    if (token === undefined) throw this.#refuse(peer, authorization === undefined ? 'missing' : 'no bearer');
    if (this.#keys && (token.startsWith('lhk_') || !this.#tokens)) {
      const found = this.#keys.check(token, peer);
      if (typeof found === 'string') throw this.#refuse(peer, found, namedKey(token, found));
      return found;
    }
    const verified = this.#tokens?.verify(token);
    if (verified === undefined) throw this.#refuse(peer, 'tokens are off');
    if (!(verified instanceof Promise)) return verified;
    return verified.catch((error: unknown) => {
      throw this.#refuse(peer, error instanceof Error ? error.name : 'refused');
    });
  }

  #bySession(found: ReturnType<Sessions['find']>, peer: string): Principal | Promise<Principal> {
    if (found instanceof Promise) return found.then((loaded) => this.#bySession(loaded, peer));
    if (typeof found === 'string') throw this.#refuse(peer, found);
    return found;
  }

  #refuse(peer: string, reason: string, keyId: string | null = null): DomainError {
    const limited = this.#failedAttempts?.count(peer);
    if (limited) return limited;
    this.log.debug('a call was not authenticated', { peer, reason });
    return new UnauthenticatedError(reason, keyId);
  }
}

/** The id of a key that exists and does not count. */
const namedKey = (token: string, refusal: KeyRefusal): string | null =>
  refusal === 'malformed' || refusal === 'unknown' ? null : (parseKey(token)?.keyId ?? null);

/** Whether a call ended because its credential does not count any more. */
export const isUnauthenticated = (error: unknown): boolean =>
  error instanceof DomainError && error.code === 'unauthenticated';

/** Without authentication: every caller is the local principal. */
export const openAuthenticator = new Authenticator({
  keys: undefined,
  tokens: undefined,
  log: createLog({ level: 'silent', human: false }),
});

function bearerIn(header: string | undefined): string | undefined {
  const [, token] = /^bearer +([\w.~+/=-]{1,8192})$/i.exec(header ?? '') ?? [];
  return token;
}

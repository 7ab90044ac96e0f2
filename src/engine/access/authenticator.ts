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
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import { createLog, type Log } from '../../lib/log.ts';
import type { PeerCertificate } from '../../lib/net/peer-certificate.ts';
import type { Caller } from '../context/engine-context.ts';
import { noRefusals, type Refusals, UnauthenticatedError } from './audit/refusals.ts';
import type { IdentityMapper } from './identities/identity-mapper.ts';
import type { KeyRefusal, KeyRing } from './key-ring.ts';
import type { FailedAttempts } from './limits/failed-attempts.ts';
import type { StreamCounts } from './limits/stream-counts.ts';
import type { Sessions } from './sessions.ts';

/** What a call carries of its caller. */
export interface Credentials {
  /** The header `authorization`. */
  authorization: string | undefined;
  /** The id of a session, from the cookie of a request of the server's own pages. */
  session?: string | undefined;
  /** The verified certificate of the connection. */
  certificate?: PeerCertificate | undefined;
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
  /** The rights of tokens and certificates. */
  identities?: IdentityMapper | undefined;
  /** Whether a certificate takes the place of a bearer that is missing. */
  takesCertificates?: boolean;
  log: Log;
}

/** How often streams of tokens and certificates are looked at. */
const roundMs = 1_000;

/** A stream, or a call that waits, that ends with its principal. */
interface Follower {
  principal: Principal;
  end(error: DomainError): void;
}

export class Authenticator {
  readonly #keys: KeyRing | undefined;
  readonly #tokens: TokenVerifier | undefined;
  readonly #sessions: Sessions | undefined;
  readonly #identities: IdentityMapper | undefined;
  readonly #failedAttempts: FailedAttempts | undefined;
  readonly #streamCounts: StreamCounts | undefined;
  readonly #rounds: PeriodicTask;
  /** Whether certificates are identities here, so that they have to be read. */
  readonly takesCertificates: boolean;
  readonly log: Log;
  readonly refusals: Refusals;
  readonly #followers = new Set<Follower>();

  constructor({
    keys,
    tokens,
    sessions,
    identities,
    takesCertificates = false,
    failedAttempts,
    streamCounts,
    refusals = noRefusals,
    log,
  }: AuthenticatorOptions) {
    this.#keys = keys;
    this.#tokens = tokens;
    this.#sessions = sessions;
    this.#identities = identities;
    this.takesCertificates = takesCertificates;
    this.#failedAttempts = failedAttempts;
    this.#streamCounts = streamCounts;
    this.log = log;
    this.refusals = refusals;
    keys?.onRound(() => this.#endFollowers());
    sessions?.onRound(() => this.#endFollowers());
    this.#rounds = new PeriodicTask({
      run: async () => {
        this.#endFollowers();
        return roundMs;
      },
      onFailed: (error) => log.warn('streams of expired credentials could not be ended', { error }),
      failedMs: roundMs,
    });
  }

  /** Keys have rounds of their own, which wait for the database. */
  start(): void {
    if (this.#identities) this.#rounds.start();
  }

  stop(): Promise<void> {
    return this.#rounds.stop();
  }

  /** Whether calls need a credential. */
  get isOn(): boolean {
    return this.#keys !== undefined || this.#tokens !== undefined || this.takesCertificates;
  }

  /**
   * Follows a stream. Calls `end` once when its principal does not count any more: its key is revoked, a rule
   * gives it other rights, or it has expired. Returns what ends that. Throws `quota_exceeded` if the
   * credential has too many streams.
   */
  follow(principal: Principal, end: (error: DomainError) => void): () => void {
    if (!this.isOn || principal.kind === 'local') return () => {};
    const close = this.#streamCounts?.open(principal);
    const unfollow = this.#add({ principal, end });
    return () => {
      unfollow();
      close?.();
    };
  }

  /**
   * Runs a call that may wait. Once its principal does not count any more, its signal fires and the call
   * fails with `unauthenticated`.
   */
  async whileInForce<Call extends Pick<Caller, 'principal' | 'signal'>, Answer>(
    caller: Call,
    run: (caller: Call) => Promise<Answer>,
  ): Promise<Answer> {
    if (!this.isOn || caller.principal.kind === 'local') return run(caller);
    const ended = new AbortController();
    const { principal, signal } = caller;
    const unfollow = this.#add({ principal, end: (error) => ended.abort(error) });
    try {
      return await run({
        ...caller,
        signal: signal ? AbortSignal.any([signal, ended.signal]) : ended.signal,
      });
    } catch (error) {
      throw ended.signal.aborted ? ended.signal.reason : error;
    } finally {
      unfollow();
    }
  }

  #add(follower: Follower): () => void {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
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
    if (expiresAtMs !== null && expiresAtMs <= now) return false;
    return this.#identities?.isInForce(principal) ?? true;
  }

  /**
   * Throws `unauthenticated`, at once or with the promise; and `permission_denied` for an identity that no
   * rule knows. A bearer counts before a session, and a session before a certificate.
   */
  authenticate({ authorization, session, certificate, peer }: Credentials): Principal | Promise<Principal> {
    if (!this.isOn) return localPrincipal;
    if (authorization === undefined && session !== undefined && this.#sessions)
      return this.#bySession(this.#sessions.find(session), peer);
    if (authorization === undefined && certificate) return this.#byCertificate(certificate, peer);
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
      if (error instanceof DomainError) throw error;
      throw this.#refuse(peer, error instanceof Error ? error.message : 'refused');
    });
  }

  #bySession(found: ReturnType<Sessions['find']>, peer: string): Principal | Promise<Principal> {
    if (found instanceof Promise) return found.then((loaded) => this.#bySession(loaded, peer));
    if (typeof found === 'string') throw this.#refuse(peer, found);
    return found;
  }

  #byCertificate(certificate: PeerCertificate, peer: string): Principal {
    if (!this.takesCertificates || !this.#identities) throw this.#refuse(peer, 'certificates are off');
    if (certificate.expiresAtMs <= Date.now()) throw this.#refuse(peer, 'the certificate has expired');
    // SPIFFE: with a second name it is not clear who this is.
    if (certificate.uris.length > 1) throw this.#refuse(peer, 'the certificate has more than one URI');
    return this.#identities.principalOf(certificate);
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

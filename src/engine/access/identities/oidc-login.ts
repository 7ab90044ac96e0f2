/**
 * Logs a user of an identity provider in: the authorization code flow of OpenID Connect, with PKCE.
 *
 * Guarantees: a code counts only for the browser that began the login. The browser keeps the state, the nonce
 * and the code verifier in a cookie that scripts cannot read, so that any server can finish the login. The ID
 * token is verified by its signature, issuer, audience, nonce and expiry, and is not kept.
 *
 * Failure modes: the provider is asked at the first login, not at the start of the server. Where it does not
 * answer, a login is `unavailable`, and the next one asks again.
 */
import * as client from 'openid-client';
import { LoginRefusedError, type ProvidedIdentity } from '../../../domain/access/session.ts';
import { DomainError } from '../../../domain/errors.ts';
import { ProviderAwayError, providerFetch } from '../../../lib/http/provider-fetch.ts';

/** How long one request to the provider may take. */
const answerS = 10;
/** What is known of the provider is asked again after so long. */
const metadataMs = 3_600_000;
/** The most of an ID token that a session keeps. */
const claimsBytesMax = 16_384;

export interface OidcSettings {
  issuer: string;
  clientId: string;
  /** A public client has none. */
  clientSecret: string | undefined;
  /** The origin under which browsers reach the server. */
  publicUrl: string;
  /** The authorities of the provider's certificate, in PEM. */
  ca: Buffer | undefined;
}

/** What the browser keeps between the two steps of a login. */
interface Pending {
  state: string;
  nonce: string;
  verifier: string;
}

export class OidcLogin {
  readonly #settings: OidcSettings;
  readonly #callbackUrl: string;
  #provider: { config: Promise<client.Configuration>; untilMs: number } | undefined;

  constructor(settings: OidcSettings, callbackPath: string) {
    this.#settings = settings;
    this.#callbackUrl = `${settings.publicUrl}${callbackPath}`;
  }

  /** Where the browser goes, and what it keeps meanwhile. */
  async begin(): Promise<{ url: string; pending: string }> {
    const config = await this.#configuration();
    const pending: Pending = {
      state: client.randomState(),
      nonce: client.randomNonce(),
      verifier: client.randomPKCECodeVerifier(),
    };
    const url = client.buildAuthorizationUrl(config, {
      redirect_uri: this.#callbackUrl,
      scope: 'openid profile email',
      code_challenge: await client.calculatePKCECodeChallenge(pending.verifier),
      code_challenge_method: 'S256',
      state: pending.state,
      nonce: pending.nonce,
    });
    return { url: url.href, pending: Object.values(pending).join('.') };
  }

  /** Throws `LoginRefusedError` if the answer of the provider does not count. */
  async finish(query: string, kept: string | undefined): Promise<ProvidedIdentity> {
    const pending = pendingIn(kept);
    if (!pending) throw new LoginRefusedError('this browser began no login');
    const config = await this.#configuration();
    const url = new URL(`${this.#callbackUrl}?${query}`);
    const checks = {
      pkceCodeVerifier: pending.verifier,
      expectedState: pending.state,
      expectedNonce: pending.nonce,
      idTokenExpected: true,
    };
    let tokens: Awaited<ReturnType<typeof client.authorizationCodeGrant>>;
    try {
      tokens = await client.authorizationCodeGrant(config, url, checks);
    } catch (cause) {
      if (isAway(cause)) throw unavailable(cause);
      throw new LoginRefusedError(reasonOf(cause), { cause });
    }
    return identityOf(tokens.claims());
  }

  #configuration(): Promise<client.Configuration> {
    const now = Date.now();
    if (this.#provider && now < this.#provider.untilMs) return this.#provider.config;
    const config = this.#discover();
    const provider = { config, untilMs: now + metadataMs };
    this.#provider = provider;
    config.catch(() => {
      if (this.#provider === provider) this.#provider = undefined;
    });
    return config;
  }

  async #discover(): Promise<client.Configuration> {
    const { issuer, clientId, clientSecret, ca } = this.#settings;
    const url = new URL(issuer);
    const authentication =
      clientSecret === undefined ? client.None() : client.ClientSecretBasic(clientSecret);
    try {
      return await client.discovery(url, clientId, undefined, authentication, {
        [client.customFetch]: providerFetch(ca),
        timeout: answerS,
        // The signature is checked, although the ID token comes from the provider itself.
        execute: [
          client.enableNonRepudiationChecks,
          ...(url.protocol === 'http:' ? [client.allowInsecureRequests] : []),
        ],
      });
    } catch (cause) {
      throw unavailable(cause);
    }
  }
}

const unavailable = (cause: unknown): DomainError =>
  new DomainError('unavailable', 'the identity provider does not answer', { cause });

/** The library wraps the errors of its requests. */
function isAway(error: unknown): boolean {
  if (error instanceof ProviderAwayError) return true;
  return error instanceof Error && error.cause !== undefined && isAway(error.cause);
}

/** For the audit: the error of the provider, such as `access_denied`, or that of the check that failed. */
function reasonOf(error: unknown): string {
  const { error: refusal, code, message } = error as { error?: unknown; code?: unknown; message: string };
  return String(refusal ?? code ?? message).slice(0, 200);
}

const word = /^[\w-]{20,128}$/;

function pendingIn(text = ''): Pending | undefined {
  const [state = '', nonce = '', verifier = '', ...others] = text.split('.');
  if (others.length > 0 || ![state, nonce, verifier].every((part) => word.test(part))) return undefined;
  return { state, nonce, verifier };
}

function identityOf(claims: client.IDToken | undefined): ProvidedIdentity {
  if (!claims) throw new LoginRefusedError('no ID token');
  const { iss: issuer, sub: subject } = claims;
  if (!/^[^\p{Cc}\p{Cs}]{1,255}$/u.test(subject))
    throw new LoginRefusedError('the claim sub is no usable name');
  const text = JSON.stringify(claims);
  if (text.length > claimsBytesMax) throw new LoginRefusedError('the ID token is too large');
  // PostgreSQL keeps no NUL.
  if (text.includes('\\u0000')) throw new LoginRefusedError('a claim contains NUL');
  return { issuer, subject, claims };
}

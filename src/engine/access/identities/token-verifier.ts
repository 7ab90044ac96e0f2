/**
 * Verifies the tokens of an identity provider: signature, algorithm, issuer, audience, and times.
 *
 * Guarantees: only the configured algorithms count, and all of them use public keys. Keys come from the
 * configuration alone, never from a token. A token that was verified is known again by its hash until it
 * expires, and for five minutes at most; a change of the issuer's keys forgets all of them.
 */
import { hash } from 'node:crypto';
import { type JWTPayload, type JWTVerifyGetKey, type JWTVerifyOptions, jwtVerify } from 'jose';
import type { TokenIdentity } from '../../../domain/access/access-rules.ts';
import type { Principal } from '../../../domain/access/principal.ts';
import type { TokenVerifier } from '../authenticator.ts';

const knownForMs = 300_000;
/** How far the clocks of issuer and server may differ. */
const toleranceS = 30;
/** The last moment that every API can write. */
const latestMs = Date.parse('9999-12-31T23:59:59Z');

/** Where the keys of the issuer come from. */
export interface IssuerKeys {
  find: JWTVerifyGetKey;
  onChange(listener: () => void): void;
}

export interface JwtVerifierOptions {
  keys: IssuerKeys;
  issuer: string;
  audience: string;
  algorithms: readonly string[];
  /** 0 is no limit. */
  maxAgeS: number;
  principalOf(identity: TokenIdentity): Principal;
  /** The most verified tokens that are known at once. */
  knownMax?: number;
  nowMs?: () => number;
}

interface Known {
  identity: TokenIdentity;
  untilMs: number;
}

export class JwtVerifier implements TokenVerifier {
  readonly #keys: IssuerKeys;
  readonly #checks: JWTVerifyOptions;
  readonly #principalOf: (identity: TokenIdentity) => Principal;
  readonly #knownMax: number;
  readonly #nowMs: () => number;
  #known = new Map<string, Known>();

  constructor({
    keys,
    issuer,
    audience,
    algorithms,
    maxAgeS,
    principalOf,
    knownMax = 10_000,
    nowMs = Date.now,
  }: JwtVerifierOptions) {
    this.#keys = keys;
    this.#principalOf = principalOf;
    this.#knownMax = knownMax;
    this.#nowMs = nowMs;
    this.#checks = {
      algorithms: [...algorithms],
      issuer,
      audience,
      requiredClaims: ['sub', 'exp'],
      clockTolerance: toleranceS,
      ...(maxAgeS > 0 ? { maxTokenAge: maxAgeS } : {}),
    };
    keys.onChange(() => {
      this.#known = new Map();
    });
  }

  /** The verified tokens that are known. */
  get size(): number {
    return this.#known.size;
  }

  verify(token: string): Principal | Promise<Principal> {
    const digest = hash('sha256', token);
    const found = this.#known.get(digest);
    if (found && this.#nowMs() < found.untilMs) return this.#principalOf(found.identity);
    return this.#verify(token, digest);
  }

  async #verify(token: string, digest: string): Promise<Principal> {
    const known = this.#known;
    const { payload } = await jwtVerify(token, this.#keys.find, {
      ...this.#checks,
      currentDate: new Date(this.#nowMs()),
    });
    const identity = identityOf(payload);
    const principal = this.#principalOf(identity);
    // If the keys have changed meanwhile, `known` is not the map that later calls read.
    known.delete(digest);
    if (known.size >= this.#knownMax) known.delete(known.keys().next().value as string);
    known.set(digest, { identity, untilMs: this.#untilMs(payload, identity) });
    return principal;
  }

  /** A known token is not examined again, so it is known no longer than every check of it holds. */
  #untilMs({ iat }: JWTPayload, { expiresAtMs }: TokenIdentity): number {
    const { maxTokenAge } = this.#checks;
    const oldMs = maxTokenAge === undefined ? latestMs : ((iat ?? 0) + Number(maxTokenAge)) * 1_000;
    return Math.min(expiresAtMs, oldMs, this.#nowMs() + knownForMs);
  }
}

/** Long enough for every issuer, and short enough for every column. */
const subjectForm = /^[^\p{Cc}\p{Cs}]{1,255}$/u;

function identityOf(payload: JWTPayload): TokenIdentity {
  const { sub, iss, exp } = payload;
  if (typeof sub !== 'string' || !subjectForm.test(sub)) throw new Error('the claim sub is no usable name');
  return {
    kind: 'jwt',
    subject: sub,
    issuer: String(iss),
    claims: payload,
    expiresAtMs: Math.min(Number(exp) * 1_000, latestMs),
  };
}

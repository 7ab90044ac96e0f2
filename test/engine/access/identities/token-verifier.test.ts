/**
 * The guarantee: only a token that the configured issuer signed with a public-key algorithm for this audience
 * is an identity, and a verified token is known again no longer than it holds.
 */
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { expect } from 'chai';
import { base64url, createLocalJWKSet, exportSPKI, type JWTPayload, SignJWT } from 'jose';
import { principalOf, type TokenIdentity } from '../../../../src/domain/access/access-rules.ts';
import type { Principal } from '../../../../src/domain/access/principal.ts';
import { everything } from '../../../../src/domain/access/scopes.ts';
import { JwtVerifier } from '../../../../src/engine/access/identities/token-verifier.ts';
import { failure } from '../../../support/failure.ts';
import { newSigningKey, type SigningKey } from '../../../support/issuer.ts';

const issuer = 'https://issuer.test';
const rule = {
  when: {},
  roles: ['worker'] as const,
  scopes: everything,
  workerIds: ['*'],
  seesPayloads: true,
};

describe('the verifier of tokens', () => {
  let key: SigningKey;
  let nowMs: number;
  let finds: number;
  let changed: () => void;

  before(async () => {
    key = await newSigningKey('one');
  });
  beforeEach(() => {
    nowMs = Date.now();
    finds = 0;
  });

  const verifierOf = (more: object = {}, keys: readonly SigningKey[] = [key]): JwtVerifier => {
    const set = createLocalJWKSet({ keys: keys.map(({ publicJwk }) => publicJwk) });
    return new JwtVerifier({
      keys: {
        find: (header, token) => {
          finds++;
          return set(header, token);
        },
        onChange: (listener) => {
          changed = listener;
        },
      },
      issuer,
      audience: 'leasehold',
      algorithms: ['RS256', 'PS256', 'ES256', 'EdDSA'],
      maxAgeS: 0,
      principalOf: (identity: TokenIdentity): Principal =>
        principalOf(identity, { rule, name: identity.subject }, 'holder'),
      nowMs: () => nowMs,
      ...more,
    });
  };

  const nowS = () => Math.floor(nowMs / 1_000);
  const claimsOf = (more: object = {}): JWTPayload =>
    JSON.parse(
      JSON.stringify({ iss: issuer, aud: 'leasehold', sub: 'shop', iat: nowS(), exp: nowS() + 60, ...more }),
    );
  const signed = (more: object = {}, header: object = {}, by = key) =>
    new SignJWT(claimsOf(more))
      .setProtectedHeader({ alg: by.algorithm, kid: by.kid, ...header })
      .sign(by.privateKey);
  const refusal = async (token: string, on = verifierOf()): Promise<string> =>
    String(await failure(Promise.resolve().then(() => on.verify(token))));

  it('knows a token that is right in everything', async () => {
    const principal = await verifierOf().verify(await signed());
    expect(principal).to.include({ kind: 'jwt', id: 'shop', expiresAtMs: (nowS() + 60) * 1_000 });
    expect(await verifierOf().verify(await signed({ aud: ['other', 'leasehold'] }))).to.include({
      id: 'shop',
    });
  });

  it('knows each algorithm with a public key, and only those that are configured', async () => {
    for (const algorithm of ['RS256', 'PS256', 'ES256', 'EdDSA']) {
      const own = await newSigningKey(algorithm, algorithm);
      const token = await signed({}, {}, own);
      expect(await verifierOf({}, [own]).verify(token), algorithm).to.include({ id: 'shop' });
      const others = ['RS256', 'PS256', 'ES256', 'EdDSA'].filter((one) => one !== algorithm);
      expect(await refusal(token, verifierOf({ algorithms: others }, [own])), algorithm).to.include('alg');
    }
  });

  it('refuses other algorithms, unsigned tokens, and a public key as a shared secret', async () => {
    const part = (value: object) => base64url.encode(JSON.stringify(value));
    const body = part(claimsOf());
    for (const alg of ['none', 'None', 'NONE', ''])
      expect(await refusal(`${part({ alg, kid: 'one' })}.${body}.`), alg).to.match(/alg|signature|JWS/i);
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
    const spki = await exportSPKI(rsa.publicKey as never).catch(() =>
      rsa.publicKey.export({ type: 'spki', format: 'pem' }).toString(),
    );
    const jwk = { ...rsa.publicKey.export({ format: 'jwk' }), kid: 'rsa', alg: 'RS256' };
    const set = [{ ...key, publicJwk: jwk } as SigningKey];
    for (const [alg, digest] of [
      ['HS256', 'sha256'],
      ['HS512', 'sha512'],
    ] as const)
      for (const secret of [spki, JSON.stringify(jwk), String(jwk.n)]) {
        const text = `${part({ alg, kid: 'rsa' })}.${body}`;
        const token = `${text}.${createHmac(digest, secret).update(text).digest('base64url')}`;
        expect(await refusal(token, verifierOf({}, set))).to.include('not allowed');
      }
    expect(finds, 'no key was looked for').to.equal(0);
    const es384 = await newSigningKey('one', 'ES384');
    expect(await refusal(await signed({}, {}, es384))).to.include('not allowed');
  });

  it('refuses claims that are missing, of another type, or of another place', async () => {
    const wrong: Record<string, object> = {
      'another issuer': { iss: 'https://issuer.test/' },
      'no issuer': { iss: undefined },
      'another audience': { aud: 'other' },
      'a longer audience': { aud: 'leasehold2' },
      'no audience': { aud: undefined },
      'no subject': { sub: undefined },
      'an empty subject': { sub: '' },
      'a subject that is a number': { sub: 7 },
      'a subject that is a list': { sub: ['shop'] },
      'a subject with a line break': { sub: 'a\nb' },
      'a long subject': { sub: 'a'.repeat(256) },
      'no end': { exp: undefined },
      'an end that is text': { exp: String(nowS() + 60) },
      'an end in the past': { exp: nowS() - 31 },
      'a beginning in the future': { nbf: nowS() + 31 },
    };
    for (const [name, claims] of Object.entries(wrong))
      expect(await refusal(await signed(claims)), name).to.match(/^\w*: /);
    for (const claims of [{ exp: nowS() - 25 }, { nbf: nowS() + 25 }])
      expect(await verifierOf().verify(await signed(claims)), 'within the tolerance').to.include({
        id: 'shop',
      });
  });

  it('refuses old tokens where an age is configured, and tokens without their age', async () => {
    const on = verifierOf({ maxAgeS: 100 });
    expect(await on.verify(await signed({ iat: nowS() - 90, exp: nowS() + 1_000 }))).to.include({
      id: 'shop',
    });
    expect(await refusal(await signed({ iat: nowS() - 140, exp: nowS() + 1_000 }), on)).to.include('iat');
    expect(await refusal(await signed({ iat: undefined }), on)).to.include('iat');
    const token = await signed({ iat: nowS() - 90, exp: nowS() + 1_000 });
    await on.verify(token);
    nowMs += 60_000;
    expect(await refusal(token, on), 'known before, too old now').to.include('iat');
  });

  it('refuses keys that a token brings along or points to', async () => {
    const own = await newSigningKey('one');
    for (const header of [
      {},
      { jwk: own.publicJwk },
      { jku: 'https://attacker.test/jwks' },
      { x5u: 'https://attacker.test/cert' },
      { kid: '../../../../dev/null' },
      { kid: "one' or '1'='1" },
      { kid: 'https://attacker.test/jwks' },
      { kid: ['one'] as unknown as string },
      { kid: { one: 1 } as unknown as string },
    ])
      expect(await refusal(await signed({}, header, own)), JSON.stringify(header)).to.match(/^\w*: /);
    const [head, body, signature] = (await signed()).split('.') as [string, string, string];
    const other = base64url.encode(JSON.stringify({ ...claimsOf(), sub: 'admin' }));
    expect(await refusal(`${head}.${other}.${signature}`)).to.include('signature');
    expect(await refusal(`${head}.${body}.`)).to.match(/signature/i);
    expect(await refusal(`${head}.${body}`)).to.include('Invalid Compact JWS');
  });

  it('verifies a token once, until it expires, and for five minutes at most', async () => {
    const on = verifierOf();
    const [short, long] = [await signed({ exp: nowS() + 60 }), await signed({ exp: nowS() + 3_600 })];
    await on.verify(short);
    await on.verify(long);
    expect(on.verify(short), 'answers at once').to.include({ id: 'shop' });
    expect(on.verify(long)).to.include({ id: 'shop' });
    expect(finds).to.equal(2);
    nowMs += 95_000;
    expect(await refusal(short, on), 'past its end and the tolerance').to.include('exp');
    nowMs += 210_000;
    await on.verify(long);
    expect(finds, 'verified again').to.equal(4);
    changed();
    await on.verify(long);
    expect(finds, 'verified again after the keys have changed').to.equal(5);
  });

  it('keeps a bounded number of tokens, and none that it refused', async () => {
    const on = verifierOf({ knownMax: 20 });
    await refusal(await signed({ aud: 'other' }), on);
    expect(on.size).to.equal(0);
    const tokens = await Promise.all(Array.from({ length: 30 }, (_, i) => signed({ jti: String(i) })));
    for (const token of tokens) await on.verify(token);
    expect(on.size).to.equal(20);
    expect(on.verify(tokens.at(-1) as string), 'the last one is known').to.include({ id: 'shop' });
  });
});

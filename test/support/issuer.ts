/** An identity provider for tests: a real server with its public keys, which signs tokens. */
import type { webcrypto } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import type { Certificate } from './certificates.ts';

export interface SigningKey {
  kid: string;
  algorithm: string;
  privateKey: webcrypto.CryptoKey;
  publicJwk: JWK;
}

export async function newSigningKey(kid: string, algorithm = 'ES256'): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm, { extractable: true });
  const publicJwk = { ...(await exportJWK(publicKey)), kid, alg: algorithm, use: 'sig' };
  return { kid, algorithm, privateKey, publicJwk };
}

export const audience = 'leasehold';

export class Issuer {
  readonly #server: Server;
  readonly #isSecure: boolean;
  keys: SigningKey[];
  /** How often its keys were asked for. */
  asked = 0;
  /** `away` closes each connection, `silent` never answers. */
  mood: 'well' | 'away' | 'silent' | 'broken' = 'well';

  private constructor(keys: SigningKey[], certificate?: Certificate) {
    this.keys = keys;
    this.#isSecure = certificate !== undefined;
    this.#server = certificate
      ? createSecureServer({ cert: certificate.cert, key: certificate.key })
      : createServer();
    this.#server.on('request', (request, response) => {
      this.asked++;
      if (this.mood === 'away') request.socket.destroy();
      else if (this.mood === 'broken') response.writeHead(500).end('no');
      else if (this.mood === 'well')
        response
          .setHeader('content-type', 'application/json')
          .end(JSON.stringify({ keys: this.keys.map(({ publicJwk }) => publicJwk) }));
    });
  }

  static async start(certificate?: Certificate): Promise<Issuer> {
    const issuer = new Issuer([await newSigningKey('first')], certificate);
    issuer.#server.listen(0, '127.0.0.1');
    await once(issuer.#server, 'listening');
    return issuer;
  }

  get url(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `${this.#isSecure ? 'https' : 'http'}://127.0.0.1:${port}`;
  }

  /** The settings of a server that takes its tokens. */
  settings(accessRulesFile: string) {
    return {
      auth: ['jwt'] as const,
      accessRulesFile,
      jwtIssuer: this.url,
      jwtAudience: audience,
      jwtJwksUrl: `${this.url}/jwks`,
    };
  }

  /** A good token, unless the claims say otherwise. A claim that is `undefined` is left out. */
  token(claims: JWTPayload & Record<string, unknown> = {}, key = this.keys.at(-1) as SigningKey) {
    const nowS = Math.floor(Date.now() / 1_000);
    const usual = { iss: this.url, aud: audience, sub: 'shop', iat: nowS, exp: nowS + 600 };
    const payload = JSON.parse(JSON.stringify({ ...usual, ...claims })) as JWTPayload;
    return new SignJWT(payload)
      .setProtectedHeader({ alg: key.algorithm, kid: key.kid, typ: 'JWT' })
      .sign(key.privateKey);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

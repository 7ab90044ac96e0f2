/** An identity provider for logins of browsers: a real server with the code flow and PKCE. */
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SignJWT } from 'jose';
import { newSigningKey, type SigningKey } from './issuer.ts';

export const clientId = 'leasehold-web';
export const clientSecret = 'the secret of the client';

interface Code {
  challenge: string;
  nonce: string;
  redirectUri: string;
}

export class OidcProvider {
  readonly #server: Server;
  readonly #key: SigningKey;
  readonly #codes = new Map<string, Code>();
  /** The user who is logged in there. */
  user: Record<string, unknown> = { sub: 'ann', groups: ['ops'] };
  /** What is wrong with its ID tokens, or that it refuses its user. */
  fault: 'none' | 'other nonce' | 'other key' | 'other audience' | 'expired' | 'denied' | 'away' = 'none';
  /** How often a code was exchanged, and refused. */
  exchanged = 0;
  refused = 0;

  private constructor(key: SigningKey) {
    this.#key = key;
    this.#server = createServer((request, response) => {
      if (this.fault === 'away') request.socket.destroy();
      else
        this.#answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
    });
  }

  static async start(): Promise<OidcProvider> {
    const provider = new OidcProvider(await newSigningKey('first', 'RS256'));
    provider.#server.listen(0, '127.0.0.1');
    await once(provider.#server, 'listening');
    return provider;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', this.url);
    const json = (status: number, body: object) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (pathname === '/.well-known/openid-configuration')
      json(200, {
        issuer: this.url,
        authorization_endpoint: `${this.url}/authorize`,
        token_endpoint: `${this.url}/token`,
        jwks_uri: `${this.url}/jwks`,
        response_types_supported: ['code'],
        subject_types_supported: ['public'],
        id_token_signing_alg_values_supported: ['RS256'],
        code_challenge_methods_supported: ['S256'],
      });
    else if (pathname === '/jwks') json(200, { keys: [this.#key.publicJwk] });
    else if (pathname === '/authorize')
      response.writeHead(302, { location: this.#authorize(searchParams) }).end();
    else if (pathname === '/token') {
      const [status, body] = await this.#exchange(request, new URLSearchParams(await text(request)));
      json(status, body);
    } else response.writeHead(404).end();
  }

  #authorize(query: URLSearchParams): string {
    const redirectUri = query.get('redirect_uri') ?? '';
    const back = new URL(redirectUri);
    back.searchParams.set('state', query.get('state') ?? '');
    const isComplete =
      query.get('client_id') === clientId &&
      query.get('response_type') === 'code' &&
      query.get('code_challenge_method') === 'S256' &&
      query.get('scope')?.split(' ').includes('openid');
    if (!isComplete) throw new Error('the request is not complete');
    if (this.fault === 'denied') back.searchParams.set('error', 'access_denied');
    else {
      const code = randomUUID();
      const [challenge, nonce] = [query.get('code_challenge') ?? '', query.get('nonce') ?? ''];
      this.#codes.set(code, { challenge, nonce, redirectUri });
      back.searchParams.set('code', code);
    }
    return back.href;
  }

  async #exchange({ headers }: IncomingMessage, form: URLSearchParams): Promise<[number, object]> {
    const code = this.#codes.get(form.get('code') ?? '');
    this.#codes.delete(form.get('code') ?? '');
    const [, sent = ''] = /^Basic (.*)$/.exec(headers.authorization ?? '') ?? [];
    const parts = Buffer.from(sent, 'base64').toString().replaceAll('+', ' ').split(':');
    const isClient = parts.map(decodeURIComponent).join(':') === `${clientId}:${clientSecret}`;
    const challenge = createHash('sha256')
      .update(form.get('code_verifier') ?? '')
      .digest('base64url');
    const isRight =
      isClient &&
      form.get('grant_type') === 'authorization_code' &&
      code?.challenge === challenge &&
      code.redirectUri === form.get('redirect_uri');
    if (!isRight) {
      this.refused += 1;
      return [isClient ? 400 : 401, { error: isClient ? 'invalid_grant' : 'invalid_client' }];
    }
    this.exchanged += 1;
    const idToken = await this.#idToken(code.nonce);
    return [200, { access_token: randomUUID(), token_type: 'Bearer', id_token: idToken, expires_in: 60 }];
  }

  async #idToken(nonce: string): Promise<string> {
    const nowS = Math.floor(Date.now() / 1_000);
    const key = this.fault === 'other key' ? await newSigningKey('first', 'RS256') : this.#key;
    return new SignJWT({ ...this.user, nonce: this.fault === 'other nonce' ? 'another' : nonce })
      .setProtectedHeader({ alg: 'RS256', kid: key.kid })
      .setIssuer(this.url)
      .setAudience(this.fault === 'other audience' ? 'another' : clientId)
      .setIssuedAt(nowS)
      .setExpirationTime(this.fault === 'expired' ? nowS - 600 : nowS + 300)
      .sign(key.privateKey);
  }
}

/** Users of an identity provider log in, by the code flow with PKCE, and nothing else begins a session. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startChromium } from '../../support/chromium.ts';
import { temporaryFolder } from '../../support/cleanup.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { freePort } from '../../support/free-port.ts';
import { type HttpAnswer, httpCall } from '../../support/http-calls.ts';
import { replaceRules, writeRules } from '../../support/identities.ts';
import { clientId, clientSecret, OidcProvider } from '../../support/oidc-provider.ts';
import { describeWith } from '../../support/programs.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

const own = { 'sec-fetch-site': 'same-origin' };
const opsRule = { when: { claims: { groups: 'ops' } }, roles: ['operator'], scopes: { addon_ids: ['*'] } };

/** The cookies of an answer, as a browser would send them back. */
const cookiesOf = ({ headers }: HttpAnswer): string =>
  (headers['set-cookie'] ?? []).map((cookie) => cookie.split(';', 1)[0]).join('; ');

onEveryEngine((engine) => {
  describe('logins at an identity provider', () => {
    let provider: OidcProvider;
    let server: TestServer;
    let rulesFile: string;
    before(async () => {
      provider = await OidcProvider.start();
      rulesFile = await writeRules(opsRule);
      const secretFile = join(await temporaryFolder('oidc'), 'secret');
      await writeFile(secretFile, `${clientSecret}\n`);
      const port = await freePort();
      server = await startTestServer(engine, {
        settings: {
          httpAddr: { host: '127.0.0.1', port },
          auth: ['jwt'],
          accessRulesFile: rulesFile,
          jwtIssuer: provider.url,
          jwtAudience: 'leasehold',
          jwtJwksUrl: `${provider.url}/jwks`,
          tlsReloadS: 1,
          oidcClientId: clientId,
          oidcClientSecretFile: secretFile,
          publicUrl: `http://127.0.0.1:${port}`,
        },
      });
    });
    beforeEach(async () => {
      provider.fault = 'none';
      provider.user = { sub: 'ann', groups: ['ops'] };
    });
    after(async () => {
      await server.stop();
      await provider.stop();
    });

    const begin = (query = '') => httpCall(`${server.http}/api/access/login${query}`);
    /** Visits the provider, and returns the address that it sends the browser back to. */
    const visit = async ({ headers }: HttpAnswer): Promise<string> =>
      (await httpCall(headers.location ?? '')).headers.location ?? '';
    const comeBack = (url: string, cookie: string) => httpCall(url, { headers: { cookie } });
    const login = async (): Promise<HttpAnswer> => {
      const begun = await begin();
      return comeBack(await visit(begun), cookiesOf(begun));
    };
    const whoAmI = (cookie: string) =>
      httpCall(`${server.http}/api/access/whoami`, { headers: { ...own, cookie } });

    it('begin a session with the rights that the access rules give', async () => {
      const begun = await begin();
      expect(begun.status).to.equal(302);
      const sent = new URL(begun.headers.location ?? '');
      expect(sent.searchParams.get('code_challenge_method')).to.equal('S256');
      for (const name of ['state', 'nonce', 'code_challenge'])
        expect(sent.searchParams.get(name), name).to.match(/^[\w-]{43}$/);
      expect(begun.headers['set-cookie']?.[0]).to.match(
        /^leasehold-login=[\w.-]+; Path=\/; Max-Age=600; HttpOnly; SameSite=Lax$/,
      );
      const answer = await comeBack(await visit(begun), cookiesOf(begun));
      expect(answer.status, answer.bytes.toString()).to.equal(303);
      expect(answer.headers.location).to.equal('/');
      const [session, pending] = answer.headers['set-cookie'] ?? [];
      expect(session).to.match(/^leasehold=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/);
      expect(pending).to.equal('leasehold-login=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax');
      const { body } = await whoAmI(cookiesOf(answer));
      expect(body).to.include({ kind: 'session', id: 'ann' });
      expect(body.roles).to.deep.equal(['operator']);
    });

    it('lead to no other place, whatever the request says', async () => {
      const evil = 'https%3A%2F%2Fevil.test';
      const begun = await begin(`?next=${evil}&return_to=${evil}&redirect_uri=${evil}`);
      const sent = new URL(begun.headers.location ?? '');
      expect(sent.origin).to.equal(provider.url);
      expect(sent.searchParams.get('redirect_uri')).to.equal(`${server.http}/api/access/callback`);
      const answer = await comeBack(`${await visit(begun)}&next=${evil}`, cookiesOf(begun));
      expect([answer.status, answer.headers.location]).to.deep.equal([303, '/']);
    });

    it('count only in the browser that began them, and once', async () => {
      const [begun, other] = [await begin(), await begin()];
      const url = await visit(begun);
      const before = provider.exchanged;
      for (const cookie of ['', cookiesOf(other)]) {
        const answer = await comeBack(url, cookie);
        expect([answer.status, answer.body.code]).to.deep.equal([401, 'unauthenticated']);
        expect(answer.headers).not.to.have.property('set-cookie');
      }
      expect(provider.exchanged).to.equal(before);
      expect((await comeBack(url, cookiesOf(begun))).status).to.equal(303);
      expect((await comeBack(url, cookiesOf(begun))).status).to.equal(401);
    });

    it('prove the code verifier to the provider', async () => {
      const begun = await begin();
      const url = await visit(begun);
      const [state, nonce] = cookiesOf(begun).split('=')[1]?.split('.') ?? [];
      const before = provider.refused;
      const answer = await comeBack(url, `leasehold-login=${state}.${nonce}.${'x'.repeat(43)}`);
      expect(answer.status).to.equal(401);
      expect(provider.refused).to.equal(before + 1);
    });

    for (const fault of ['other nonce', 'other key', 'other audience', 'expired', 'denied'] as const)
      it(`begin no session with an answer of the provider that is wrong: ${fault}`, async () => {
        provider.fault = fault;
        const answer = await login();
        expect([answer.status, answer.body.code]).to.deep.equal([401, 'unauthenticated']);
        expect(answer.headers).not.to.have.property('set-cookie');
      });

    it('are refused to users whom no access rule matches', async () => {
      provider.user = { sub: 'eve', groups: ['others'] };
      const answer = await login();
      expect([answer.status, answer.body.code]).to.deep.equal([403, 'permission_denied']);
      expect(answer.headers).not.to.have.property('set-cookie');
    });

    it('end when the access rules give their user nothing any more', async () => {
      const cookie = cookiesOf(await login());
      expect((await whoAmI(cookie)).status).to.equal(200);
      await replaceRules(rulesFile, { ...opsRule, when: { claims: { groups: 'nobody' } } });
      await eventually('the session has ended', async () =>
        (await whoAmI(cookie)).status === 401 ? true : undefined,
      );
      await replaceRules(rulesFile, opsRule);
      await eventually('the rule is back', async () =>
        (await whoAmI(cookie)).status === 200 ? true : undefined,
      );
    });

    it('are unavailable while the provider is away', async () => {
      const begun = await begin();
      const url = await visit(begun);
      provider.fault = 'away';
      const answer = await comeBack(url, cookiesOf(begun));
      expect([answer.status, answer.body.code]).to.deep.equal([503, 'unavailable']);
      server.complaints.length = 0;
    });

    it('are unknown to a server without an identity provider', async () => {
      await using plain = await startTestServer(engine);
      for (const name of ['login', 'callback']) {
        const { status, body } = await httpCall(`${plain.http}/api/access/${name}`);
        expect([status, body.code]).to.deep.equal([404, 'not_found']);
      }
    });

    describeWith('chromium', 'in a browser', () => {
      it('lead back to the server, whose pages then have the session', async () => {
        const browser = await startChromium();
        try {
          const context = await browser.newContext();
          const page = await context.newPage();
          await page.goto(`${server.http}/api/access/login`);
          expect(page.url()).to.equal(`${server.http}/`);
          const cookies = await context.cookies(server.http);
          expect(cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite }))).to.deep.equal(
            [{ name: 'leasehold', httpOnly: true, sameSite: 'Strict' }],
          );
          await page.goto(`${server.http}/healthz`);
          const who = await page.evaluate(async () => (await fetch('/api/access/whoami')).json());
          expect(who).to.include({ kind: 'session', id: 'ann' });
        } finally {
          await browser.close();
        }
      });
    });
  });
});

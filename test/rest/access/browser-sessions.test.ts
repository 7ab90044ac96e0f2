/** A real Chromium logs in, and pages of other origins try to use the login. */
import { expect } from 'chai';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { Authority, CertificateFiles } from '../../support/certificates.ts';
import { startChromium } from '../../support/chromium.ts';
import { onEveryEngine } from '../../support/engines.ts';
import {
  httpCall,
  type PageHost,
  type Recorder,
  startPages,
  startRecorder,
} from '../../support/http-calls.ts';
import { type Body, jobsPath, newAddon } from '../../support/jobs-api.ts';
import { type KeyedServer, startKeyedServer } from '../../support/keys.ts';
import { describeWith } from '../../support/programs.ts';

const sessionPath = '/api/access/session';
const hosts = ['app.test', 'evil.test'];

interface PageCall {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  mode?: 'no-cors';
  credentials?: 'include';
}

interface PageAnswer {
  status: number;
  text: string;
  headers: Record<string, string>;
}

/** What `fetch` in the page answers, or the name of its error. */
const fetchIn = (page: Page, url: string, init: PageCall = {}): Promise<PageAnswer | string> =>
  page.evaluate(
    async ([url, init]) => {
      try {
        const response = await fetch(url, { ...init, cache: 'no-store' });
        const headers = Object.fromEntries([...response.headers]);
        return { status: response.status, text: await response.text(), headers };
      } catch (error) {
        return (error as Error).name;
      }
    },
    [url, init] as const,
  );

const answered = (answer: PageAnswer | string): PageAnswer => {
  if (typeof answer === 'string') throw new Error(`fetch failed: ${answer}`);
  return answer;
};

const json = { 'content-type': 'application/json' };
const jobOf = (addon: string) => JSON.stringify({ addon_id: addon, job_type: 't', cost_units: 1 });

onEveryEngine((engine) => {
  describeWith('chromium', 'a browser with a login (A1)', () => {
    let server: KeyedServer;
    let pages: PageHost;
    let recorder: Recorder;
    let browser: Browser;
    let context: BrowserContext;
    let page: Page;
    before(async () => {
      pages = await startPages();
      const allowedOrigins = [`http://app.test:${pages.port}`];
      server = await startKeyedServer(engine, { settings: { allowedOrigins } });
      recorder = await startRecorder(server.http);
      const rules = hosts.map((host) => `MAP ${host} 127.0.0.1`).join(', ');
      browser = await startChromium([`--host-resolver-rules=${rules}`]);
    });
    beforeEach(async () => {
      context = await browser.newContext();
      page = await context.newPage();
    });
    afterEach(() => context.close());
    after(async () => {
      await browser.close();
      await recorder.close();
      await server.stop();
      await pages.close();
    });

    const login = (text = server.admin.text, on = page) =>
      fetchIn(on, sessionPath, { method: 'POST', headers: json, body: JSON.stringify({ key: text }) });
    const jobsOf = async (addon: string): Promise<Body[]> => {
      const { headers } = server.admin;
      return (await httpCall(`${server.http}${jobsPath}?addon_id=${addon}`, { headers })).body.jobs;
    };

    it('logs in, calls the server with its cookie, and logs out', async () => {
      await page.goto(`${server.http}/healthz`);
      const begun = answered(await login());
      expect(begun.status, begun.text).to.equal(201);
      const [cookie, ...others] = await context.cookies();
      expect(others).to.deep.equal([]);
      expect(cookie).to.include({
        name: 'leasehold',
        path: '/',
        httpOnly: true,
        secure: false,
        sameSite: 'Strict',
      });
      expect(await page.evaluate('document.cookie')).to.equal('');
      const whoAmI = answered(await fetchIn(page, '/api/access/whoami'));
      expect(JSON.parse(whoAmI.text)).to.include({ kind: 'session', name: 'first' });
      const addon = newAddon();
      const submit = { method: 'POST', headers: json, body: jobOf(addon) };
      expect(answered(await fetchIn(page, `${jobsPath}/submit`, submit)).status).to.equal(201);
      expect(await jobsOf(addon)).to.have.length(1);
      const rpc = { method: 'POST', headers: json, body: '{}' };
      expect(answered(await fetchIn(page, '/leasehold.v1.KeysService/WhoAmI', rpc)).text).to.match(/session/);
      expect(answered(await fetchIn(page, sessionPath, { method: 'DELETE' })).status).to.equal(204);
      expect(await context.cookies()).to.deep.equal([]);
      expect(answered(await fetchIn(page, '/api/access/whoami')).status).to.equal(401);
    });

    const strangers: Record<string, () => string> = {
      // The cookie is sent: to the browser, another port is the same site.
      'another port of the same host': () => `http://127.0.0.1:${pages.port}`,
      'another site': () => `http://evil.test:${pages.port}`,
      'an allowed origin': () => `http://app.test:${pages.port}`,
    };
    for (const [what, origin] of Object.entries(strangers)) {
      it(`does not lend its login to a page of ${what}`, async () => {
        const http = `http://127.0.0.1:${recorder.port}`;
        await page.goto(`${http}/healthz`);
        expect(answered(await login()).status).to.equal(201);
        const addon = newAddon();
        const stranger = await context.newPage();
        await stranger.goto(origin());
        recorder.seen.length = 0;
        const read = await fetchIn(stranger, `${http}${jobsPath}`, { credentials: 'include' });
        expect(read).to.equal('TypeError');
        const body = jobOf(addon);
        const url = `${http}${jobsPath}/submit`;
        await fetchIn(stranger, url, { method: 'POST', mode: 'no-cors', credentials: 'include', body });
        const formed = stranger.waitForResponse((response) => response.request().method() === 'POST');
        const action = JSON.stringify(`${http}${jobsPath}/retry`);
        await stranger.evaluate(`{
          const form = Object.assign(document.createElement('form'), { method: 'POST', action: ${action} });
          document.body.append(form);
          form.submit();
        }`);
        await formed;
        const posts = ['/submit', '/retry'].map((name) => `POST ${jobsPath}${name}`);
        const asked = recorder.seen.filter(({ path }) => path.startsWith(jobsPath));
        expect(asked.map(({ method, path }) => `${method} ${path}`)).to.deep.equal([
          `GET ${jobsPath}`,
          ...posts,
        ]);
        for (const { headers, status } of asked) {
          expect(headers.cookie !== undefined).to.equal(what.startsWith('another port'));
          expect(status).to.be.oneOf([401, 403]);
        }
        expect(await jobsOf(addon)).to.deep.equal([]);
      });
    }

    it('shows answers and errors to a page of an allowed origin that sends a key', async () => {
      await page.goto(`http://app.test:${pages.port}`);
      const addon = newAddon();
      const { headers } = server.admin;
      const submit = { method: 'POST', headers: { ...json, ...headers }, body: jobOf(addon) };
      const rest = answered(await fetchIn(page, `${server.http}${jobsPath}/submit`, submit));
      expect(rest.status).to.equal(201);
      const rpc = `${server.http}/leasehold.v1.JobsService`;
      expect(answered(await fetchIn(page, `${rpc}/SubmitJob`, submit)).status).to.equal(200);
      expect(await jobsOf(addon)).to.have.length(2);
      const refused = answered(await fetchIn(page, `${rpc}/SubmitJob`, { ...submit, headers: json }));
      expect(refused.text).to.match(/unauthenticated/);
      const web = { 'content-type': 'application/grpc-web+json', 'x-grpc-web': '1', ...headers };
      const frame = '\0\0\0\0\x02{}';
      const missing = await fetchIn(page, `${rpc}/GetJob`, { method: 'POST', headers: web, body: frame });
      const { text, headers: told } = answered(missing);
      expect(`${told['grpc-status']} ${told['grpc-message']} ${text}`).to.match(
        /invalid_request|job_not_found/,
      );
    });

    it('shows nothing to a page of another origin that sends a key', async () => {
      await page.goto(`http://evil.test:${pages.port}`);
      const { headers } = server.admin;
      const addon = newAddon();
      const submit = { method: 'POST', headers: { ...json, ...headers }, body: jobOf(addon) };
      expect(await fetchIn(page, `${server.http}${jobsPath}/submit`, submit)).to.equal('TypeError');
      expect(await fetchIn(page, `${server.http}${jobsPath}`, { headers })).to.equal('TypeError');
      expect(await jobsOf(addon)).to.deep.equal([]);
    });

    it('is refused by the server under a name that was rebound to it', async () => {
      await page.goto(`http://evil.test:${server.running.http.port}/healthz`);
      for (const answer of [await login(), await fetchIn(page, '/api/access/whoami')]) {
        const { status, text } = answered(answer);
        expect(status).to.equal(403);
        expect(text).to.match(/host_not_allowed/);
      }
      expect(await context.cookies()).to.deep.equal([]);
    });
  });

  describeWith('chromium', 'a browser with a login over TLS (A1)', () => {
    describeWith('openssl', 'certificates', () => {
      it('gets a cookie that is bound to the host and to TLS', async () => {
        const authority = await Authority.create();
        const files = await CertificateFiles.create(await authority.issue('localhost'));
        await using server = await startKeyedServer(engine, {
          settings: { tlsCertFile: files.certFile, tlsKeyFile: files.keyFile },
        });
        const browser = await startChromium();
        try {
          const context = await browser.newContext({ ignoreHTTPSErrors: true });
          const page = await context.newPage();
          await page.goto(`https://localhost:${server.running.http.port}/healthz`);
          const body = JSON.stringify({ key: server.admin.text });
          const begun = await fetchIn(page, sessionPath, { method: 'POST', headers: json, body });
          expect(answered(begun).status).to.equal(201);
          const [cookie] = await context.cookies();
          expect(cookie).to.include({
            name: '__Host-leasehold',
            domain: 'localhost',
            path: '/',
            httpOnly: true,
            secure: true,
            sameSite: 'Strict',
          });
          const whoAmI = answered(await fetchIn(page, '/api/access/whoami'));
          expect(JSON.parse(whoAmI.text)).to.include({ kind: 'session' });
        } finally {
          await browser.close();
        }
      });
    });
  });
});

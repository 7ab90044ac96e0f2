import { expect } from 'chai';
import type { Browser, Page } from 'playwright-core';
import { startChromium } from '../../support/chromium.ts';
import { descriptionFrom, type Json } from '../../support/description.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Answer, post } from '../../support/jobs-api.ts';
import { describeWith } from '../../support/programs.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

/**
 * What the page and the browser reported: a script's error, or a request that the policy or the network
 * refused.
 */
interface OpenPage {
  page: Page;
  complaints: string[];
}

onEveryEngine((engine) => {
  describe('the page of the API description', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const fetched = async (path: string, init: RequestInit = {}) => {
      const response = await fetch(`${server.http}${path}`, init);
      return { status: response.status, headers: response.headers, text: await response.text() };
    };

    it('serves the page at /docs with and without a slash, and answers HEAD', async () => {
      for (const path of ['/docs', '/docs/']) {
        const page = await fetched(path);
        expect(page.status).to.equal(200);
        expect(page.headers.get('content-type')).to.equal('text/html; charset=utf-8');
        expect(page.text).to.match(/^<!doctype html>/);
        const head = await fetched(path, { method: 'HEAD' });
        expect([head.status, head.text]).to.deep.equal([200, '']);
        expect(head.headers.get('content-length')).to.equal(String(Buffer.byteLength(page.text)));
      }
    });

    it('answers only GET and HEAD for the page (S4)', async () => {
      for (const path of ['/docs', '/docs/', '/docs/docs.js', '/docs/docs.css', '/openapi.json']) {
        const answer: Answer = await post(server, path, {});
        expect(answer.status, path).to.equal(405);
        expect(answer.headers.get('allow'), path).to.equal('GET, HEAD');
      }
      expect((await fetched('/docs/nothing')).status).to.equal(404);
      expect((await fetched('/docs/../package.json')).status).to.equal(404);
      expect((await fetched('/docs/%2e%2e%2fpackage.json')).status).to.equal(404);
    });

    it('loads nothing from other servers, and sends a policy that forbids it', async () => {
      const page = await fetched('/docs');
      const policy = new Map(
        (page.headers.get('content-security-policy') ?? '').split('; ').map((rule) => {
          const [name = '', ...sources] = rule.split(' ');
          return [name, sources.join(' ')];
        }),
      );
      expect(policy.get('default-src')).to.equal("'none'");
      for (const name of ['script-src', 'style-src', 'connect-src'])
        expect(policy.get(name), name).to.equal("'self'");
      expect([...policy.values()].join(' ')).not.to.match(/unsafe|https?:|\*/);

      const links = [...page.text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, link = '']) => link);
      expect(links).to.include.members(['/docs/docs.js', '/docs/docs.css', '/openapi.json']);
      for (const link of links) {
        expect(link).to.match(/^(\/(?!\/)|#|data:,$)/);
        if (link.startsWith('/')) expect((await fetched(link)).status, link).to.equal(200);
      }
      // The policy forbids inline scripts and styles.
      expect(page.text).not.to.match(/<script(?![^>]*src)|<style|style=|onclick|onload/);
      for (const path of ['/docs/docs.js', '/docs/docs.css'])
        expect((await fetched(path)).text, path).not.to.match(/https?:|@import|url\(|\bimport\b|innerHTML/);
    });
  });

  // The page is the same on every engine.
  if (engine.name !== 'embedded') return;
  describeWith('chromium', 'the page that shows the API, in a browser', () => {
    let browser: Browser;
    let server: TestServer;
    let told: Json;
    before(async function () {
      this.timeout(60_000);
      browser = await startChromium();
      server = await startTestServer(engine);
      told = (await descriptionFrom(server)).document;
    });
    after(async () => {
      await browser.close();
      await server.stop();
    });

    async function opened(options: Parameters<Browser['newPage']>[0] = {}): Promise<OpenPage> {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
      const complaints: string[] = [];
      page.on('console', (message) => void complaints.push(message.text()));
      page.on('pageerror', (error) => void complaints.push(error.message));
      await page.goto(`${server.http}/docs`);
      await page.locator('article').first().waitFor();
      return { page, complaints };
    }

    const textOf = (page: Page) => page.locator('body').evaluate((body) => body.textContent ?? '');

    /** Expands every answer and field, and those within them, to the given depth. */
    async function openAll(page: Page, depth: number): Promise<void> {
      for (let level = 0; level < depth; level++)
        await page.evaluate(`(async () => {
        const closed = [...document.querySelectorAll('details:not([open])')];
        const toggled = closed.map((one) => new Promise((done) => one.addEventListener('toggle', done)));
        for (const one of closed) one.open = true;
        await Promise.all(toggled);
      })()`);
    }

    it('shows each example as JSON and never as [object …] (A1)', async () => {
      const { page, complaints } = await opened();
      const examples = async () =>
        (await page.locator('article pre').allTextContents()).filter((text) => !text.startsWith('curl'));
      const closed = await examples();
      expect(closed.length).to.be.above(20);
      await openAll(page, 3);
      expect((await examples()).length).to.be.above(closed.length + 100);
      for (const text of await examples()) expect(() => JSON.parse(text), text).not.to.throw();
      expect(await textOf(page)).not.to.match(/\[object|undefined|NaN/);
      expect(complaints).to.deep.equal([]);
      await page.close();
    });

    it('shows code as code, and limits as a range with its unit (A8)', async () => {
      const { page } = await opened();
      await openAll(page, 1);
      const text = await textOf(page);
      expect(text).not.to.include('`');
      expect(text).not.to.match(/characters (from|to) \d/);
      const row = page.locator('#submitJob tr', { has: page.locator('th', { hasText: 'addon_id' }) });
      expect(await row.locator('td').first().textContent()).to.include('1 to 200 characters');
      await page.locator('#submitJob code', { hasText: 'client_request_id' }).first().waitFor();
      await page.close();
    });

    it('shows each operation with method, path, parameters, body, answers and a curl command', async () => {
      const { page } = await opened();
      const text = await textOf(page);
      expect(text).to.include(told.info.version).and.to.include('order-17');
      const articles = Object.fromEntries(
        await page.$$eval('article', (all) =>
          all.map(({ id, textContent }) => [id, textContent ?? ''] as const),
        ),
      );
      for (const [path, methods] of Object.entries<Json>(told.paths)) {
        for (const [method, operation] of Object.entries<Json>(methods)) {
          const article = articles[operation.operationId] ?? expect.fail(`no ${operation.operationId}`);
          expect(article).to.include(`${method.toUpperCase()} ${path}`);
          expect(article).to.include(operation.summary.replaceAll('`', ''));
          expect(article).to.match(/curl .*'http/);
          for (const { name } of operation.parameters ?? []) expect(article).to.include(name);
          for (const status of Object.keys(operation.responses)) expect(article).to.include(`${status} `);
          const schema = operation.requestBody?.content['application/json'].schema;
          for (const name of Object.keys(schema?.properties ?? {})) expect(article).to.include(name);
          const link = page.locator(`nav a[href="#${operation.operationId}"]`);
          expect(await link.textContent()).to.include(operation.summary.replaceAll('`', ''));
        }
      }
      await page.close();
    });

    it('expands the schema of an answer, and the schemas within it', async () => {
      const { page } = await opened();
      const answer = page.locator('#getJob details', { hasText: /^200/ }).first();
      expect(await answer.textContent()).not.to.include('JobResult');
      await answer.locator('summary').first().click();
      await answer.locator('pre', { hasText: '"result_data"' }).waitFor();
      await answer.locator('summary', { hasText: 'JobResult' }).click();
      await answer.locator('th', { hasText: 'finished_at' }).waitFor();
      await page.close();
    });

    it('finds operations by search terms, error codes among them', async () => {
      const { page } = await opened();
      const visible = async (words: string) => {
        await page.fill('#search', words);
        return page.$$eval('article:not([hidden])', (articles) => articles.map(({ id }) => id));
      };
      expect(await visible('contention_not_found')).to.deep.equal(['instructBlocker']);
      expect(await page.textContent('#found')).to.equal('One operation');
      expect(await visible('POST /internal/worker')).to.have.length(4);
      expect(await visible('surely-no-such-word')).to.deep.equal([]);
      expect((await visible('')).length).to.be.above(30);
      await page.locator('h1').click();
      await page.keyboard.press('/');
      expect(await page.evaluate('document.activeElement.id')).to.equal('search');
      await page.close();
    });

    it('fits a narrow screen, and follows the dark scheme until the user presses its button', async () => {
      const { page } = await opened({ viewport: { width: 390, height: 844 }, colorScheme: 'dark' });
      await openAll(page, 2);
      const widths = await page.evaluate<number[]>('[document.documentElement.scrollWidth, innerWidth]');
      expect(widths[0]).to.equal(widths[1]);
      // On a narrow screen a name wraps only after an underscore.
      const broken = await page.evaluate<string[]>(`
      [...document.querySelectorAll('article th code')].flatMap((code) => [...code.childNodes]).filter((part) => {
        const range = document.createRange();
        range.selectNodeContents(part);
        return range.getClientRects().length > 1;
      }).map((part) => part.textContent)`);
      expect(broken).to.deep.equal([]);
      const background = () => page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
      const dark = await background();
      await page.click('#theme');
      expect(await background()).not.to.equal(dark);
      await page.close();
    });

    it('reports that it cannot load the description', async () => {
      const page = await browser.newPage();
      await page.route('**/openapi.json', (route) => route.fulfill({ status: 503, body: '' }));
      await page.goto(`${server.http}/docs`);
      await page.locator('#found', { hasText: 'could not be shown' }).waitFor();
      expect(await page.textContent('#found')).to.include('503');
      await page.close();
    });
  });
});

import { createContext, runInContext } from 'node:vm';
import { expect } from 'chai';
import { Window } from 'happy-dom';
import { type Answer, post } from '../contracts/queue.ts';
import { descriptionFrom, type Json } from '../support/description.ts';
import { onEveryEngine } from '../support/engines.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

onEveryEngine((engine) => {
  describe('the page that shows the API', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const fetched = async (path: string, init: RequestInit = {}) => {
      const response = await fetch(`${server.http}${path}`, init);
      return { status: response.status, headers: response.headers, text: await response.text() };
    };

    it('is at /docs with and without a slash, and answers HEAD', async () => {
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

    it('is for nothing but GET', async () => {
      for (const path of ['/docs', '/docs/', '/docs/docs.js', '/docs/docs.css', '/openapi.json']) {
        const answer: Answer = await post(server, path, {});
        expect(answer.status, path).to.equal(405);
        expect(answer.headers.get('allow'), path).to.equal('GET');
      }
      expect((await fetched('/docs/nothing')).status).to.equal(404);
      expect((await fetched('/docs/../package.json')).status).to.equal(404);
      expect((await fetched('/docs/%2e%2e%2fpackage.json')).status).to.equal(404);
    });

    it('needs nothing but this server, and lets the browser allow nothing else', async () => {
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

      const { document } = new Window({ url: `${server.http}/docs` });
      document.write(page.text);
      const links = [...document.querySelectorAll('[src], [href]')].map(
        (element) => element.getAttribute('src') ?? element.getAttribute('href') ?? '',
      );
      expect(links).to.include.members(['/docs/docs.js', '/docs/docs.css', '/openapi.json']);
      for (const link of links) {
        expect(link).to.match(/^(\/(?!\/)|#|data:,$)/);
        if (link.startsWith('/')) expect((await fetched(link)).status, link).to.equal(200);
      }
      // The policy forbids scripts and styles that stand in the page itself.
      expect(
        document.querySelectorAll('script:not([src]), style, [style], [onclick], [onload]'),
      ).to.have.length(0);
      for (const path of ['/docs/docs.js', '/docs/docs.css'])
        expect((await fetched(path)).text, path).not.to.match(/https?:|@import|url\(|\bimport\b|innerHTML/);
    });

    /** Runs the page's own script on the page, with an answer to what it fetches. */
    async function shown(answer: () => Promise<Response>) {
      const window = new Window({ url: `${server.http}/docs` });
      const { document, location } = window;
      document.write((await fetched('/docs')).text);
      const script = (await fetched('/docs/docs.js')).text;
      const asked: unknown[] = [];
      const fetchIt = (...request: unknown[]) => {
        asked.push(...request);
        return answer();
      };
      const globals = { document, location, fetch: fetchIt, matchMedia: () => ({ matches: true }) };
      await runInContext(script, createContext(globals));
      expect(asked).to.deep.equal(['/openapi.json']);
      return { window, document, text: () => document.body.textContent };
    }

    const real = () => fetch(`${server.http}/openapi.json`);

    it('shows every operation with its method, path, parameters, body, answers, and a line for curl', async () => {
      const { document, text } = await shown(real);
      const { document: told } = await descriptionFrom(server);
      expect(text()).to.include(told.info.version).and.to.include(told.info.description);
      for (const [path, methods] of Object.entries<Json>(told.paths)) {
        for (const [method, operation] of Object.entries<Json>(methods)) {
          const article = document.getElementById(operation.operationId)?.textContent ?? '';
          expect(article).to.include(`${method.toUpperCase()} ${path}`);
          expect(article).to.include(operation.summary);
          expect(article).to.match(/curl .*'http/);
          for (const { name } of operation.parameters ?? []) expect(article).to.include(name);
          for (const status of Object.keys(operation.responses)) expect(article).to.include(`${status} `);
          const schema = operation.requestBody?.content['application/json'].schema;
          for (const name of Object.keys(schema?.properties ?? {})) expect(article).to.include(name);
          const link = document.querySelector(`nav a[href="#${operation.operationId}"]`);
          expect(link?.textContent).to.include(operation.summary);
        }
      }
      expect(text()).to.include('client_request_id').and.to.include('order-17');
    });

    it('opens what an answer is made of, and what that is made of', async () => {
      const { document, window } = await shown(real);
      const answers = [...document.querySelectorAll('#getJob details')];
      const found = answers.find((one) => one.querySelector('summary')?.textContent.startsWith('200'));
      expect(found?.textContent).not.to.include('JobResult');
      found?.dispatchEvent(new window.Event('toggle'));
      expect(found?.textContent).to.include('JobResult').and.to.include('"result_data"');
      const inner = [...(found?.querySelectorAll('details') ?? [])].at(-1);
      inner?.dispatchEvent(new window.Event('toggle'));
      expect(inner?.textContent).to.include('finished_at');
    });

    it('finds operations by words, codes of errors among them', async () => {
      const { document, window } = await shown(real);
      const search = document.getElementById('search') as unknown as { value: string } & EventTarget;
      const visible = (words: string): string[] => {
        search.value = words;
        search.dispatchEvent(new window.Event('input') as unknown as Event);
        return [...document.querySelectorAll('article')].flatMap((one) =>
          one.hasAttribute('hidden') ? [] : [one.id],
        );
      };
      expect(visible('contention_not_found')).to.deep.equal(['instructBlocker']);
      expect(document.getElementById('found')?.textContent).to.equal('One operation');
      expect(visible('POST /internal/worker')).to.have.length(4);
      expect(visible('surely-no-such-word')).to.deep.equal([]);
      expect(visible('').length).to.be.above(30);
    });

    it('says so where the description cannot be had', async () => {
      const { text } = await shown(async () => new Response('', { status: 503 }));
      expect(text()).to.include('could not be shown').and.to.include('503');
    });
  });
});

/** A page of another origin, in a real Chromium, tries to write to the server and to read from it. */
import { once } from 'node:events';
import { createServer as createHttpServer, type Server } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket, type Server as TcpServer } from 'node:net';
import { expect } from 'chai';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { startChromium } from '../../support/chromium.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, jobsPath, newAddon, submit } from '../../support/jobs-api.ts';
import { describeWith } from '../../support/programs.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const evilHost = 'evil.test';
const evilPage = '<!doctype html><title>evil</title><p>nothing to see</p>';

async function listening(server: Server | TcpServer): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

interface PageRequest {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

/**
 * A port that serves the attacker's page until it is rebound, and forwards to the server from then on. To the
 * browser this equals a name whose address has changed: host and port stay the same.
 */
class RebindingPort {
  readonly #sockets = new Set<Socket>();
  readonly #server: TcpServer;
  #target: number | undefined;

  constructor() {
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => this.#sockets.delete(socket));
      if (this.#target === undefined) {
        const head = `content-type: text/html\r\ncontent-length: ${evilPage.length}\r\nconnection: close`;
        socket.end(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n${evilPage}`);
        return;
      }
      const onward = connect(this.#target, '127.0.0.1');
      onward.on('error', () => socket.destroy());
      onward.on('close', () => socket.destroy());
      socket.on('close', () => onward.destroy());
      socket.pipe(onward).pipe(socket);
    });
  }

  listen(): Promise<number> {
    return listening(this.#server);
  }

  rebind(port: number): void {
    this.#target = port;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

onEveryEngine((engine) => {
  describeWith('chromium', 'a page of another origin (A1)', () => {
    let server: TestServer;
    let browser: Browser;
    let context: BrowserContext;
    let page: Page;
    let pages: Server;
    let pagesPort: number;
    before(async () => {
      server = await startTestServer(engine);
      browser = await startChromium([`--host-resolver-rules=MAP ${evilHost} 127.0.0.1`]);
      pages = createHttpServer((_, response) => {
        response.writeHead(200, { 'content-type': 'text/html' }).end(evilPage);
      });
      pagesPort = await listening(pages);
    });
    beforeEach(async () => {
      context = await browser.newContext();
      page = await context.newPage();
    });
    afterEach(() => context.close());
    after(async () => {
      await browser.close();
      pages.close();
      pages.closeAllConnections();
      await server.stop();
    });

    const jobsOf = async (addonId: string): Promise<Body[]> => {
      const response = await fetch(`${server.http}${jobsPath}?addon_id=${addonId}`);
      return ((await response.json()) as Body).jobs;
    };
    const bodyOf = (addonId: string) => JSON.stringify({ addon_id: addonId, job_type: 't', cost_units: 1 });

    const origins: Record<string, () => string> = {
      'of another site': () => `http://${evilHost}:${pagesPort}`,
      'of another port of the same host': () => `http://127.0.0.1:${pagesPort}`,
    };
    for (const [what, origin] of Object.entries(origins)) {
      for (const type of ['', 'text/plain']) {
        it(`refuses a submission of a page ${what} with a body of type '${type}'`, async () => {
          const addon = newAddon();
          await page.goto(origin());
          const outcome = await page.evaluate(
            async ([url, text, type]: readonly string[]) => {
              const body = new Blob([text as string], { type: type as string });
              return (await fetch(url as string, { method: 'POST', mode: 'no-cors', body })).type;
            },
            [`${server.http}${jobsPath}/submit`, bodyOf(addon), type],
          );
          // The browser has sent the request and received an answer, which it hides from the page.
          expect(outcome).to.equal('opaque');
          expect(await jobsOf(addon)).to.deep.equal([]);
        });
      }

      it(`refuses a cancellation by a form without fields of a page ${what}`, async () => {
        const job = await submit(server, { addon_id: newAddon() });
        await page.goto(origin());
        const answered = page.waitForResponse((response) => response.url().endsWith('/cancel'));
        // Passed as text, because TypeScript does not know the browser's names here.
        const action = JSON.stringify(`${server.http}${jobsPath}/${job.job_id}/cancel`);
        await page.evaluate(`{
          const form = Object.assign(document.createElement('form'), { method: 'POST', action: ${action} });
          document.body.append(form);
          form.submit();
        }`);
        const response = await answered;
        expect(response.status()).to.equal(403);
        expect(((await response.json()) as Body).code).to.equal('origin_not_allowed');
        expect((await jobsOf(job.addon_id)).map(({ state }) => state)).to.deep.equal(['QUEUED']);
      });

      it(`hides answers from a page ${what}`, async () => {
        await page.goto(origin());
        const outcome = await page.evaluate(
          (url) =>
            fetch(url).then(
              (response) => response.text(),
              (error: Error) => error.name,
            ),
          `${server.http}${jobsPath}`,
        );
        expect(outcome).to.equal('TypeError');
      });
    }

    it('refuses reads and writes by DNS rebinding', async () => {
      const addon = newAddon();
      const port = new RebindingPort();
      try {
        await page.goto(`http://${evilHost}:${await port.listen()}`);
        expect(await page.title()).to.equal('evil');
        port.rebind(server.running.http.port);
        const ask = (path: string, init: PageRequest = {}) =>
          page.evaluate(
            async ([path, init]) => {
              const response = await fetch(path, { ...init, cache: 'no-store' });
              return { status: response.status, text: await response.text() };
            },
            [path, init] as const,
          );
        const headers = { 'content-type': 'application/json' };
        const rpc = '/leasehold.v1.JobsService';
        const answers = [
          await ask(jobsPath),
          await ask('/metrics'),
          await ask(`${jobsPath}/submit`, { method: 'POST', headers, body: bodyOf(addon) }),
          await ask(`${rpc}/ListJobs`, { method: 'POST', headers, body: '{}' }),
        ];
        for (const { status, text } of answers) {
          expect(status, text).to.equal(403);
          expect(text).to.include('host_not_allowed').and.to.include(evilHost);
        }
        expect(await jobsOf(addon)).to.deep.equal([]);
      } finally {
        await port.close();
      }
    });

    it("accepts a submission of the server's own page", async () => {
      const addon = newAddon();
      await page.goto(`${server.http}/docs`);
      const status = await page.evaluate(
        async ([url, body]: readonly string[]) => {
          const headers = { 'content-type': 'application/json' };
          return (await fetch(url as string, { method: 'POST', headers, body: body as string })).status;
        },
        [`${jobsPath}/submit`, bodyOf(addon)],
      );
      expect(status).to.equal(201);
      expect(await jobsOf(addon)).to.have.length(1);
    });
  });
});

/** The server refuses what a web page of another site could make a browser send, and serves programs. */
import type { IncomingMessage } from 'node:http';
import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import { BrowserGuard } from '../../../src/rest/http/browser-guard.ts';
import { expectRefusal, expectUnharmed, sendRaw } from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { jobsPath, newAddon, submit } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const submitPath = `${jobsPath}/submit`;
const rpcPath = '/leasehold.v1.JobsService/SubmitJob';

interface Raw {
  method?: string;
  target?: string;
  headers?: Record<string, string>;
  body?: string;
}

/** An HTTP/1.1 request with exactly the given headers. */
function raw({ method = 'POST', target = submitPath, headers = {}, body = '' }: Raw): string {
  const all = { connection: 'close', ...(body && { 'content-length': String(body.length) }), ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  return `${method} ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}

const json = { 'content-type': 'application/json' };
const bodyOf = (addonId: string) => JSON.stringify({ addon_id: addonId, job_type: 't', cost_units: 1 });

onEveryEngine((engine) => {
  describe('the guard against browsers (A1)', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { allowedHosts: ['leases.test', '*.apps.test'] } });
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    const jobsOf = async (addonId: string): Promise<unknown[]> => {
      const response = await fetch(`${server.http}${jobsPath}?addon_id=${addonId}`);
      return ((await response.json()) as { jobs: unknown[] }).jobs;
    };

    const own = [
      'localhost',
      'LOCALHOST:1',
      'app.localhost',
      '127.0.0.1',
      '127.8.9.10:80',
      '[::1]:8080',
      'localhost.',
    ];
    const named = ['leases.test', 'Leases.Test:8080', 'leases.test.', 'a.apps.test', 'a.b.apps.test:1'];
    for (const host of [...own, ...named]) {
      it(`serves a request for the host ${host}`, async () => {
        const answer = await sendRaw(server, raw({ method: 'GET', target: jobsPath, headers: { host } }));
        expect(answer.status, answer.text).to.equal(200);
      });
    }

    const foreign = [
      'evil.test',
      'evil.test:8080',
      'localhost.evil.test',
      'notlocalhost',
      'leases.test.evil.test',
      'apps.test',
      'evilapps.test',
      '10.0.0.1',
      '[2001:db8::1]',
      '0.0.0.0',
      '127.0.0.1.evil.test',
      'localhost@evil.test',
      'localhost:80:80',
      'localhost, evil.test',
      '[localhost]',
      '',
    ];
    for (const host of foreign) {
      it(`refuses a request for the host ${JSON.stringify(host)} on every interface`, async () => {
        const addon = newAddon();
        const headers = { host, ...json };
        const targets: Raw[] = [
          { method: 'GET', target: jobsPath, headers: { host } },
          { method: 'GET', target: '/metrics', headers: { host } },
          { method: 'GET', target: '/docs', headers: { host } },
          { method: 'GET', target: '/nowhere', headers: { host } },
          { method: 'DELETE', target: jobsPath, headers: { host } },
          { headers, body: bodyOf(addon) },
        ];
        for (const one of targets) {
          const answer = await sendRaw(server, raw(one));
          expectRefusal(answer, 403, 'host_not_allowed', 'host');
          expect(answer.body.detail).to.include('LEASEHOLD_ALLOWED_HOSTS');
        }
        expect(await jobsOf(addon)).to.deep.equal([]);
      });
    }

    it('answers a foreign host with errors of Connect and of gRPC-Web', async () => {
      const headers = { host: 'evil.test', ...json };
      const body = JSON.stringify({ addonId: 'a', jobType: 't', costUnits: 1 });
      const connect = await sendRaw(server, raw({ target: rpcPath, headers, body }));
      expect(connect.status).to.equal(403);
      expect(connect.body.code).to.equal('permission_denied');
      expect(connect.body.message).to.match(/^host_not_allowed: .*LEASEHOLD_ALLOWED_HOSTS/);
      const type = { 'content-type': 'application/grpc-web+json' };
      const web = await sendRaw(server, raw({ target: rpcPath, headers: { ...headers, ...type }, body }));
      expect(web.headers.get('grpc-status')).to.equal('7');
      expect(decodeURIComponent(web.headers.get('grpc-message') ?? '')).to.match(/^host_not_allowed: /);
    });

    it('answers a foreign host with errors of the worker contract', async () => {
      const headers = { host: 'evil.test', ...json };
      const answer = await sendRaw(server, raw({ target: '/internal/worker/claim', headers, body: '{}' }));
      expectRefusal(answer, 403, 'host_not_allowed');
      expect(answer.body.claimed).to.equal(false);
    });

    it('lets any host read the health of the server, and no page write there', async () => {
      for (const target of ['/healthz', '/readyz']) {
        const headers = { host: 'evil.test' };
        expect((await sendRaw(server, raw({ method: 'GET', target, headers }))).status).to.equal(200);
        const cross = { host: 'localhost', 'sec-fetch-site': 'cross-site' };
        const answer = await sendRaw(server, raw({ target, headers: cross }));
        expectRefusal(answer, 403, 'origin_not_allowed');
      }
    });

    it('checks the authority of a request target that is a complete address', async () => {
      const ask = (target: string, host: string) =>
        sendRaw(server, raw({ method: 'GET', target: `${target}${jobsPath}`, headers: { host } }));
      expect((await ask('http://localhost', 'localhost')).status).to.equal(200);
      expect((await ask('http://leases.test:99', 'localhost')).status).to.equal(200);
      for (const [target, host] of [
        ['http://evil.test', 'localhost'],
        ['HTTP://evil.test', 'localhost'],
        ['http://localhost', 'evil.test'],
        ['http://localhost@evil.test', 'localhost'],
        ['http://evil.test?', 'localhost'],
      ] as const)
        expectRefusal(await ask(target, host), 403, 'host_not_allowed');
    });

    it('refuses HTTP/1.1 without Host in JSON (S5)', async () => {
      const answer = await sendRaw(server, raw({ method: 'GET', target: jobsPath }));
      expectRefusal(answer, 400, 'invalid_request', 'host');
    });

    it('refuses CONNECT in JSON (S5)', async () => {
      const answer = await sendRaw(server, 'CONNECT localhost:8080 HTTP/1.1\r\nhost: localhost:8080\r\n\r\n');
      expectRefusal(answer, 405, 'method_not_allowed');
      expect(answer.headers.get('allow')).to.equal('GET, HEAD, POST, PUT, DELETE');
    });

    const foreignPages: Record<string, Record<string, string>> = {
      'of another site': { 'sec-fetch-site': 'cross-site', origin: 'http://evil.test' },
      'of the same site': { 'sec-fetch-site': 'same-site', origin: 'http://localhost:3000' },
      'that says nothing of its origin': { 'sec-fetch-site': 'cross-site' },
      'of an origin that another header calls its own': {
        'sec-fetch-site': 'cross-site',
        origin: 'http://localhost:8080',
      },
      'of a word that nobody knows': { 'sec-fetch-site': 'other' },
      'in an old browser': { origin: 'http://evil.test' },
      'in an old browser, on another port': { origin: 'http://localhost:3000' },
      'in an old browser, in a sandbox': { origin: 'null' },
      'in an old browser, from a file': { origin: 'file://' },
      'in an old browser, with an origin that only begins alike': {
        origin: 'http://localhost:8080.evil.test',
      },
    };
    for (const [what, headers] of Object.entries(foreignPages)) {
      it(`refuses the write of a page ${what} on every interface`, async () => {
        const addon = newAddon();
        const host = { host: 'localhost:8080', ...headers };
        const rest = raw({ headers: { ...host, ...json }, body: bodyOf(addon) });
        expectRefusal(await sendRaw(server, rest), 403, 'origin_not_allowed', 'origin');
        const rpc = JSON.stringify({ addonId: addon, jobType: 't', costUnits: 1 });
        const connect = await sendRaw(
          server,
          raw({ target: rpcPath, headers: { ...host, ...json }, body: rpc }),
        );
        expect(connect.status).to.equal(403);
        expect(connect.body.message).to.match(/^origin_not_allowed: /);
        const { job_id } = await submit(server, { addon_id: newAddon() });
        const bodiless = raw({
          target: `${jobsPath}/${job_id}/cancel`,
          headers: { ...host, 'content-length': '0' },
        });
        expectRefusal(await sendRaw(server, bodiless), 403, 'origin_not_allowed');
        expect(await jobsOf(addon)).to.deep.equal([]);
      });

      it(`sends a page ${what} no header that lets it read an answer`, async () => {
        const host = { host: 'localhost:8080', ...headers };
        const answer = await sendRaw(server, raw({ method: 'GET', target: jobsPath, headers: host }));
        expect(answer.status).to.equal(200);
        // Without this header a browser gives the answer to no other origin.
        expect(answer.headers.get('access-control-allow-origin')).to.equal(null);
      });
    }

    const ownPages: Record<string, Record<string, string>> = {
      'of a program': {},
      'of its own page': { 'sec-fetch-site': 'same-origin', origin: 'http://localhost:8080' },
      'of a person at the address bar': { 'sec-fetch-site': 'none' },
      'of its own page behind a proxy that changes Host': {
        'sec-fetch-site': 'same-origin',
        origin: 'https://leases.example',
      },
      'of its own page in an old browser': { origin: 'http://LOCALHOST:8080' },
      'of its own page in an old browser behind TLS': { origin: 'https://localhost:8080' },
    };
    for (const [what, headers] of Object.entries(ownPages)) {
      it(`serves the write ${what}, with a body and without`, async () => {
        const host = { host: 'localhost:8080', ...headers };
        const body = bodyOf(newAddon());
        expect((await sendRaw(server, raw({ headers: { ...host, ...json }, body }))).status).to.equal(201);
        const { job_id } = await submit(server, {});
        const target = `${jobsPath}/${job_id}/cancel`;
        const bodiless = await sendRaw(server, raw({ target, headers: { ...host, 'content-length': '0' } }));
        expect(bodiless.status, bodiless.text).to.equal(200);
      });
    }

    it('refuses a body without a content type before it reads the body', async () => {
      const addon = newAddon();
      const answer = await sendRaw(server, raw({ headers: { host: 'localhost' }, body: bodyOf(addon) }));
      expectRefusal(answer, 415, 'unsupported_media_type');
      const chunked = { host: 'localhost', 'transfer-encoding': 'chunked' };
      const body = bodyOf(addon);
      const chunks = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
      expectRefusal(await sendRaw(server, raw({ headers: chunked }), chunks), 415, 'unsupported_media_type');
      const unsent = raw({ headers: { host: 'localhost', 'content-length': '50' } });
      expectRefusal(await sendRaw(server, unsent), 415, 'unsupported_media_type');
      expect(await jobsOf(addon)).to.deep.equal([]);
    });

    it('refuses a request before it asks a waiting client for the body', async () => {
      const waiting = { expect: '100-continue', 'content-length': '100', ...json };
      const refused = await sendRaw(server, raw({ headers: { host: 'evil.test', ...waiting } }));
      expectRefusal(refused, 403, 'host_not_allowed');
      const body = bodyOf(newAddon());
      const taken = { host: 'localhost', ...waiting, 'content-length': String(body.length) };
      const asked = await sendRaw(server, raw({ headers: taken }), body);
      expect(asked.status).to.equal(100);
      expect(asked.text).to.include(' 201 ');
    });

    it('serves a request with an unknown expectation', async () => {
      const headers = { host: 'localhost', expect: 'the-best' };
      expect((await sendRaw(server, raw({ method: 'GET', target: jobsPath, headers }))).status).to.equal(200);
    });
  });
});

describe('the guard of a server that is bound to another address (A1)', () => {
  const guardOf = (boundHost: string, address: string, allowedHosts: readonly string[] = []) => {
    const guard = new BrowserGuard({ boundHost, allowedHosts });
    guard.boundTo(address);
    return (host: string): string => {
      try {
        const request = { headers: { host }, httpVersion: '1.1', url: '/', method: 'GET' };
        guard.check(request as unknown as IncomingMessage, '/');
        return 'served';
      } catch (error) {
        if (error instanceof DomainError) return error.code;
        throw error;
      }
    };
  };

  it('accepts every IP address if the server is bound to more than loopback', () => {
    for (const address of ['0.0.0.0', '::', '192.168.1.5']) {
      const serves = guardOf(address, address);
      for (const host of ['10.0.0.1', '192.168.1.5:8080', '[2001:db8::1]:80', 'localhost', '127.0.0.1'])
        expect(serves(host), `${host} on ${address}`).to.equal('served');
      for (const host of ['evil.test', '10.0.0.1.evil.test', '0x7f.1', '2130706433'])
        expect(serves(host), `${host} on ${address}`).to.equal('host_not_allowed');
    }
  });

  it('accepts the name that the server is bound to, and no other address if that is loopback', () => {
    const byName = guardOf('box.lan', '192.168.1.5');
    expect(byName('BOX.lan:8080')).to.equal('served');
    expect(byName('other.lan')).to.equal('host_not_allowed');
    const loopback = guardOf('::ffff:127.0.0.1', '::ffff:127.0.0.1');
    expect(loopback('[::ffff:7f00:1]')).to.equal('served');
    expect(loopback('192.168.1.5')).to.equal('host_not_allowed');
  });

  it('accepts any host if the setting is *', () => {
    const serves = guardOf('127.0.0.1', '127.0.0.1', ['*']);
    for (const host of ['evil.test', '10.0.0.1', '']) expect(serves(host)).to.equal('served');
  });

  it('goes on refusing after more hosts than it remembers', () => {
    const serves = guardOf('127.0.0.1', '127.0.0.1', ['*.apps.test']);
    for (let i = 0; i < 200; i++) expect(serves(`a${i}.apps.test`)).to.equal('served');
    expect(serves('evil.test')).to.equal('host_not_allowed');
    expect(serves('a199.apps.test')).to.equal('served');
  });
});

/** Pages of listed origins may call a server with authentication; pages of all others may not. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { type HttpAnswer, type HttpCall, httpCall } from '../../support/http-calls.ts';
import { jobsPath, newAddon } from '../../support/jobs-api.ts';
import { type KeyedServer, startKeyedServer } from '../../support/keys.ts';

const listed = 'https://app.example.org';
const others = [
  'https://evil.test',
  'https://app.example.org.evil.test',
  'http://app.example.org',
  'https://app.example.org:8443',
  'https://APP.example.org',
  'null',
];
const rpc = '/leasehold.v1.JobsService';

/** The ways to submit a job from a page. */
const faces: Record<string, (addon: string) => { path: string } & HttpCall> = {
  REST: (addon) => ({ path: `${jobsPath}/submit`, body: jobOf(addon) }),
  Connect: (addon) => ({ path: `${rpc}/SubmitJob`, body: jobOf(addon) }),
  'gRPC-Web': (addon) => ({
    path: `${rpc}/SubmitJob`,
    headers: { 'content-type': 'application/grpc-web+json', 'x-grpc-web': '1' },
    body: enveloped(jobOf(addon)),
  }),
};

const jobOf = (addon: string): string => JSON.stringify({ addon_id: addon, job_type: 't', cost_units: 1 });

function enveloped(text: string): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(Buffer.byteLength(text), 1);
  return Buffer.concat([head, Buffer.from(text)]);
}

const namesIn = (header: string | undefined): string[] =>
  (header ?? '').split(',').map((name) => name.trim().toLowerCase());

onEveryEngine((engine) => {
  describe('cross-origin calls (A1)', () => {
    let server: KeyedServer;
    before(async () => {
      server = await startKeyedServer(engine, { settings: { allowedOrigins: [listed, 'http://b.test'] } });
    });
    after(() => server.stop());

    const call = (path: string, options: HttpCall = {}): Promise<HttpAnswer> =>
      httpCall(`${server.http}${path}`, options);
    const preflight = (origin: string, path: string, headers: Record<string, string> = {}) =>
      call(path, {
        method: 'OPTIONS',
        headers: { origin, 'access-control-request-method': 'POST', ...headers },
      });
    const jobsOf = async (addon: string): Promise<unknown[]> =>
      (await call(`${jobsPath}?addon_id=${addon}`, { headers: server.admin.headers })).body.jobs;

    for (const [face, callOf] of Object.entries(faces)) {
      it(`answers the preflight of a listed origin over ${face}, without a credential`, async () => {
        const { path } = callOf(newAddon());
        const { status, headers, bytes } = await preflight(listed, path);
        expect(status).to.equal(204);
        expect(bytes).to.have.length(0);
        expect(headers['access-control-allow-origin']).to.equal(listed);
        expect(headers).not.to.have.property('access-control-allow-credentials');
        expect(headers.vary).to.equal('origin');
        expect(Number(headers['access-control-max-age'])).to.be.above(0);
        expect(namesIn(headers['access-control-allow-methods'])).to.include.members(['get', 'post', 'put']);
        const wanted = ['authorization', 'content-type', 'connect-protocol-version', 'x-grpc-web'];
        expect(namesIn(headers['access-control-allow-headers'])).to.include.members(wanted);
      });

      it(`serves a page of a listed origin over ${face}, by its own credential alone`, async () => {
        const addon = newAddon();
        const { path, headers: own, ...rest } = callOf(addon);
        const browser = { origin: listed, 'sec-fetch-site': 'cross-site', ...own };
        const stranger = await call(path, { method: 'POST', headers: browser, ...rest });
        const admitted = { ...browser, ...server.admin.headers };
        const { headers } = await call(path, { method: 'POST', headers: admitted, ...rest });
        for (const answer of [stranger.headers, headers]) {
          expect(answer['access-control-allow-origin']).to.equal(listed);
          expect(answer).not.to.have.property('access-control-allow-credentials');
          expect(answer.vary).to.equal('origin');
          const exposed = ['grpc-status', 'grpc-message', 'grpc-status-details-bin', 'retry-after'];
          expect(namesIn(answer['access-control-expose-headers'])).to.include.members(exposed);
        }
        expect(JSON.stringify(stranger.headers) + stranger.bytes).to.match(/unauthenticated/);
        expect(await jobsOf(addon)).to.have.length(1);
      });

      it(`refuses pages of all other origins over ${face}, with a credential too`, async () => {
        const addon = newAddon();
        for (const origin of others) {
          const { path, headers: own, ...rest } = callOf(addon);
          const asked = await preflight(origin, path);
          expect(asked.status, origin).to.equal(401);
          const browser = { origin, 'sec-fetch-site': 'cross-site', ...own, ...server.admin.headers };
          const refused = await call(path, { method: 'POST', headers: browser, ...rest });
          expect(JSON.stringify(refused.headers) + refused.bytes, origin).to.match(/origin_not_allowed/);
          for (const { headers } of [asked, refused]) {
            expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).to.deep.equal(
              [],
            );
            expect(headers.vary, origin).to.equal('origin');
          }
        }
        expect(await jobsOf(addon)).to.deep.equal([]);
      });
    }

    it('refuses a preflight for a host that is not its own', async () => {
      const { status, body } = await preflight(listed, jobsPath, { host: 'evil.test' });
      expect(status).to.equal(403);
      expect(body.code).to.equal('host_not_allowed');
    });

    it('varies a large answer by origin and by encoding', async () => {
      const headers = { origin: listed, 'accept-encoding': 'gzip', ...server.admin.headers };
      const answer = await call('/openapi.json', { headers });
      expect(answer.headers['content-encoding']).to.equal('gzip');
      expect(namesIn(answer.headers.vary)).to.have.members(['origin', 'accept-encoding']);
    });
  });

  describe('cross-origin calls to a server without listed origins (A1)', () => {
    it('sends no header of cross-origin resource sharing', async () => {
      await using server = await startKeyedServer(engine);
      const headers = { origin: listed, ...server.admin.headers };
      for (const method of ['OPTIONS', 'GET']) {
        const asked = { ...headers, 'access-control-request-method': 'POST' };
        const answer = await httpCall(`${server.http}${jobsPath}`, { method, headers: asked });
        expect(answer.status).to.equal(method === 'GET' ? 200 : 405);
        expect(Object.keys(answer.headers).join()).not.to.match(/access-control|vary/);
      }
    });
  });
});

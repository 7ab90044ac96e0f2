/** A browser's session over HTTP: its cookie, what it opens, and for which requests it counts. */
import { credentials, Client as GrpcClient, Metadata, type ServiceError } from '@grpc/grpc-js';
import { expect } from 'chai';
import { onEveryEngine, type TestStore } from '../../support/engines.ts';
import { type HttpAnswer, type HttpCall, httpCall } from '../../support/http-calls.ts';
import { jobsPath, newAddon } from '../../support/jobs-api.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../../support/keys.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

const path = '/api/access/session';
const own = { 'sec-fetch-site': 'same-origin' };

/** The cookie of an answer, as a browser would send it back. */
const cookieOf = ({ headers }: HttpAnswer): string => headers['set-cookie']?.[0]?.split(';', 1)[0] ?? '';

onEveryEngine((engine) => {
  describe('sessions of browsers', () => {
    let shared: TestStore;
    let server: KeyedServer;
    let other: TestServer;
    let key: TestKey;
    before(async () => {
      shared = await engine.create();
      server = await startKeyedServer(engine, {
        shared,
        settings: { allowedHosts: ['leases.test'], allowedOrigins: ['https://app.test'] },
      });
      key = await createKey(server.database, { name: 'ann', roles: ['submitter'] });
      // An embedded database has one server.
      other =
        engine.name === 'embedded'
          ? server
          : await startTestServer(engine, { shared, settings: { auth: ['keys'] } });
      for (const { http } of [server, other])
        await eventually('the servers know the key', async () => {
          const { status } = await httpCall(`${http}/api/access/whoami`, { headers: key.headers });
          return status === 200 || undefined;
        });
    });
    after(async () => {
      if (other !== server) await other.stop();
      await server.stop();
      await shared.remove();
    });

    const call = (target: string, options: HttpCall = {}): Promise<HttpAnswer> =>
      httpCall(`${server.http}${target}`, options);
    const login = (text = key.text, headers: Record<string, string> = own) =>
      call(path, { method: 'POST', headers, body: JSON.stringify({ key: text }) });
    const job = (addon: string) => JSON.stringify({ addon_id: addon, job_type: 't', cost_units: 1 });

    it('begin with a key, and set a cookie that scripts and other sites cannot use', async () => {
      const answer = await login();
      expect(answer.status).to.equal(201);
      expect(answer.body.identity).to.include({ kind: 'session', name: 'ann' });
      expect(answer.body).to.include({ idle_timeout_s: 3_600 });
      const lengthMs = Date.parse(answer.body.expires_at) - Date.parse(answer.body.created_at);
      expect(lengthMs).to.equal(43_200_000);
      expect(answer.headers['set-cookie']).to.have.length(1);
      expect(answer.headers['set-cookie']?.[0]).to.match(
        /^leasehold=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
      );
      expect(answer.bytes.toString()).not.to.include(cookieOf(answer).split('=')[1]);
      expect(answer.headers['cache-control']).to.equal('no-store');
    });

    it('have a cookie for TLS alone, bound to the host, beyond plain loopback', async () => {
      const answer = await login(key.text, { ...own, host: 'leases.test' });
      expect(answer.headers['set-cookie']?.[0]).to.match(
        /^__Host-leasehold=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure$/,
      );
      const cookie = cookieOf(answer);
      const headers = { ...own, host: 'leases.test', cookie };
      expect((await call(path, { headers })).status).to.equal(200);
      const planted = { ...headers, cookie: cookie.replace('__Host-', '') };
      expect((await call(path, { headers: planted })).status).to.equal(401);
    });

    it('open what the key opens, over REST and Connect, and nothing more', async () => {
      const cookie = cookieOf(await login());
      const addon = newAddon();
      const headers = { ...own, cookie };
      const post = (target: string) => call(target, { method: 'POST', headers, body: job(addon) });
      expect((await post(`${jobsPath}/submit`)).status).to.equal(201);
      expect((await post('/leasehold.v1.JobsService/SubmitJob')).status).to.equal(200);
      const listed = await call(`${jobsPath}?addon_id=${addon}`, { headers });
      expect(listed.body.jobs).to.have.length(2);
      const denied = await call('/api/access/keys', { headers });
      expect(denied.body.code).to.equal('permission_denied');
    });

    it('count for requests of the own origin alone', async () => {
      const cookie = cookieOf(await login());
      const { host } = new URL(server.http);
      const counting: Record<string, string>[] = [own, { origin: `http://${host}` }];
      const others: Record<string, string>[] = [
        {},
        { 'sec-fetch-site': 'none' },
        { 'sec-fetch-site': 'same-site' },
        { 'sec-fetch-site': 'cross-site' },
        { 'sec-fetch-site': 'cross-site', origin: `http://${host}` },
        { origin: 'http://evil.test' },
        { origin: 'null' },
        { origin: 'https://app.test' },
      ];
      const statusOf = async (headers: Record<string, string>) =>
        (await call(path, { headers: { ...headers, cookie } })).status;
      for (const headers of counting) expect(await statusOf(headers)).to.equal(200);
      for (const headers of others) expect(await statusOf(headers), JSON.stringify(headers)).to.equal(401);
    });

    it('refuse writes that another site makes the browser send, with the cookie', async () => {
      const cookie = cookieOf(await login());
      const addon = newAddon();
      const write = (headers: Record<string, string>) =>
        call(`${jobsPath}/submit`, { method: 'POST', headers: { ...headers, cookie }, body: job(addon) });
      const foreign = await write({ 'sec-fetch-site': 'cross-site', origin: 'http://evil.test' });
      expect(foreign.body.code).to.equal('origin_not_allowed');
      const listed = await write({ 'sec-fetch-site': 'cross-site', origin: 'https://app.test' });
      expect(listed.body.code).to.equal('unauthenticated');
      const rebound = await write({ ...own, host: 'evil.test' });
      expect(rebound.body.code).to.equal('host_not_allowed');
      const found = await call(`${jobsPath}?addon_id=${addon}`, { headers: key.headers });
      expect(found.body.jobs).to.deep.equal([]);
    });

    it('begin by pages of the own origin alone, not by those of allowed origins', async () => {
      const page = { origin: 'https://app.test', 'sec-fetch-site': 'cross-site' };
      const answer = await login(key.text, page);
      expect(answer.body.code).to.equal('origin_not_allowed');
      expect(answer.headers).not.to.have.property('set-cookie');
    });

    it('give way to a credential that the request carries', async () => {
      const cookie = cookieOf(await login());
      const headers = { ...own, cookie, ...server.admin.headers };
      const { body } = await call('/api/access/whoami', { headers });
      expect(body).to.include({ kind: 'key', name: 'first' });
      const wrong = { ...own, cookie, authorization: 'Bearer wrong' };
      expect((await call('/api/access/whoami', { headers: wrong })).status).to.equal(401);
    });

    it('never count on the port of gRPC', async () => {
      const cookie = cookieOf(await login());
      const metadata = new Metadata();
      for (const [name, value] of Object.entries({ ...own, cookie })) metadata.set(name, value);
      const grpc = new GrpcClient(server.grpc, credentials.createInsecure());
      const asIs = (value: Buffer) => value;
      const error = await new Promise<ServiceError | null>((resolve) => {
        const rpc = '/leasehold.v1.KeysService/WhoAmI';
        grpc.makeUnaryRequest(rpc, asIs, asIs, Buffer.alloc(0), metadata, (failure) => resolve(failure));
      });
      grpc.close();
      expect(error?.details).to.match(/^unauthenticated/);
    });

    it('take a new id at each login, and end the one before', async () => {
      const planted = `leasehold=${'A'.repeat(43)}`;
      const first = cookieOf(await login(key.text, { ...own, cookie: planted }));
      expect(first).not.to.equal(planted);
      const second = cookieOf(await login(key.text, { ...own, cookie: first }));
      expect(second).not.to.equal(first);
      const statusOf = async (cookie: string) => (await call(path, { headers: { ...own, cookie } })).status;
      expect(await statusOf(planted)).to.equal(401);
      expect(await statusOf(first)).to.equal(401);
      expect(await statusOf(second)).to.equal(200);
    });

    it('end by a logout, on every server, and are in the audit with their logins', async () => {
      const cookie = cookieOf(await login());
      const headers = { ...own, cookie };
      expect((await httpCall(`${other.http}${path}`, { headers })).status).to.equal(200);
      const answer = await call(path, { method: 'DELETE', headers });
      expect(answer.status).to.equal(204);
      expect(answer.headers['set-cookie']).to.deep.equal([
        'leasehold=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict',
      ]);
      expect((await call(path, { headers })).status).to.equal(401);
      await eventually('the other server has heard of the logout', async () => {
        const { status } = await httpCall(`${other.http}${path}`, { headers });
        return status === 401 || undefined;
      });
      const audit = `/api/access/audit?principal_id=${key.keyId}`;
      const { body } = await call(audit, { headers: server.admin.headers });
      const events = body.events as { action: string; target: string; peer: string }[];
      const [logout, begin] = events.filter(({ action }) => action.startsWith('session.'));
      expect([begin?.action, logout?.action]).to.deep.equal(['session.login', 'session.logout']);
      expect(begin?.target).to.be.a('string').and.equal(logout?.target);
    });

    it('end with their key on every server, and end the streams of their pages', async () => {
      const made = await createKey(server.database, { name: 'leaver', roles: ['submitter'] });
      for (const { http } of [server, other])
        await eventually('the servers know the key', async () => {
          const { status } = await httpCall(`${http}/api/access/whoami`, { headers: made.headers });
          return status === 200 || undefined;
        });
      const headers = { ...own, cookie: cookieOf(await login(made.text)) };
      const watched = await fetch(`${other.http}/leasehold.v1.JobsService/WatchJob`, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/connect+json' },
        body: await watchOf(server, made),
      });
      const reader = watched.body?.getReader();
      expect(Buffer.from((await reader?.read())?.value ?? []).toString()).to.match(/QUEUED/);
      const revoke = { method: 'POST', headers: server.admin.headers, body: '{}' };
      expect((await call(`/api/access/keys/${made.keyId}/revoke`, revoke)).status).to.equal(200);
      let rest = '';
      for (let part = await reader?.read(); part && !part.done; part = await reader?.read())
        rest += Buffer.from(part.value).toString();
      expect(rest).to.match(/unauthenticated/);
      for (const { http } of [server, other])
        await eventually('the session has ended', async () => {
          const { status } = await httpCall(`${http}${path}`, { headers });
          return status === 401 || undefined;
        });
    });

    it('begin with no wrong key, whose text is answered as little as it is logged', async () => {
      const wrong = `${key.text.slice(0, -1)}_`;
      const answer = await login(wrong);
      expect(answer.status).to.equal(401);
      expect(answer.headers).not.to.have.property('set-cookie');
      expect(answer.bytes.toString()).not.to.include(wrong);
      expect(JSON.stringify(server.complaints)).not.to.include(wrong);
    });

    it('are unknown to callers with another credential', async () => {
      for (const method of ['GET', 'DELETE']) {
        const { status, body } = await call(path, { method, headers: { ...own, ...key.headers } });
        expect([status, body.code]).to.deep.equal([404, 'not_found']);
      }
    });

    it('are no matter of a server without authentication', async () => {
      await using plain = await startTestServer(engine);
      const begun = await httpCall(`${plain.http}${path}`, { method: 'POST', body: '{"key":"k"}' });
      expect([begun.status, begun.body.code]).to.deep.equal([409, 'illegal_transition']);
      const found = await httpCall(`${plain.http}${path}`);
      expect([found.status, found.body.code]).to.deep.equal([404, 'not_found']);
    });
  });
});

/** The envelope of a request to watch a new job of the key. */
async function watchOf({ http }: TestServer, { headers }: TestKey): Promise<Buffer> {
  const body = JSON.stringify({ addon_id: newAddon(), job_type: 't', cost_units: 1 });
  const submitted = await httpCall(`${http}${jobsPath}/submit`, { method: 'POST', headers, body });
  const text = JSON.stringify({ jobId: submitted.body.job.job_id });
  const head = Buffer.alloc(5);
  head.writeUInt32BE(text.length, 1);
  return Buffer.concat([head, Buffer.from(text)]);
}

/** What a server tells about itself, and to whom: reflection, metrics, probes, and the peer that it notes. */
import { credentials, Client as GrpcClient, Metadata, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { onEveryEngine } from '../support/engines.ts';
import { startKeyedServer } from '../support/keys.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

const everywhere = { host: '0.0.0.0', port: 0 };

/** The code with which reflection answers; 0 if it describes the services. */
function reflectionCode(on: TestServer): Promise<number> {
  const client = new GrpcClient(`127.0.0.1:${on.running.grpc.port}`, credentials.createInsecure());
  const same = (bytes: Buffer) => bytes;
  const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
  const call = client.makeBidiStreamRequest(path, same, same, new Metadata());
  call.on('error', () => {});
  // list_services
  call.end(Buffer.from([0x3a, 0]));
  call.resume();
  return new Promise((resolve) =>
    call.on('status', ({ code }) => {
      client.close();
      resolve(code);
    }),
  );
}

onEveryEngine((engine) => {
  if (engine.name !== 'embedded') return;

  describe('what a server tells about itself', () => {
    it('includes reflection on loopback, and elsewhere only where a setting says so', async () => {
      const insecure = ['no-auth', 'no-tls'] as const;
      for (const [settings, code] of [
        [{}, status.OK],
        [{ reflection: 'off' }, status.UNIMPLEMENTED],
        [{ grpcAddr: everywhere, insecure }, status.UNIMPLEMENTED],
        [{ httpAddr: everywhere, insecure }, status.UNIMPLEMENTED],
        [{ grpcAddr: everywhere, insecure, reflection: 'on' }, status.OK],
      ] as const) {
        await using on = await startTestServer(engine, { settings });
        expect(await reflectionCode(on), JSON.stringify(settings)).to.equal(code);
      }
    });

    it('has metrics without a credential on their own port alone, and nothing else there', async () => {
      await using on = await startKeyedServer(engine, {
        settings: { metricsAddr: { host: '127.0.0.1', port: 0 } },
      });
      const own = `http://127.0.0.1:${on.running.metricsAddress?.port}`;
      const statusOf = async (url: string, init: RequestInit = {}) => (await fetch(url, init)).status;
      expect(await statusOf(`${own}/metrics`)).to.equal(200);
      expect(await statusOf(`${own}/healthz`)).to.equal(200);
      expect(await statusOf(`${on.http}/metrics`)).to.equal(401);
      expect(await statusOf(`${on.http}/metrics`, { headers: on.admin.headers })).to.equal(200);
      for (const path of ['/api/scheduler/jobs', '/docs', '/openapi.json', '/api/access/keys'])
        expect(await statusOf(own + path, { headers: on.admin.headers }), path).to.equal(404);
      expect(await statusOf(`${own}/leasehold.v1.KeysService/ListKeys`, { method: 'POST' })).to.equal(404);
      expect(await statusOf(`${own}/metrics`, { headers: { 'sec-fetch-site': 'cross-site' } })).to.equal(200);
    });

    it('has no port for metrics by default', async () => {
      await using on = await startTestServer(engine);
      expect(on.running.metricsAddress).to.equal(undefined);
    });

    it('says only whether it is ready, where callers need a credential', async () => {
      await using on = await startKeyedServer(engine);
      expect(await (await fetch(`${on.http}/readyz`)).json()).to.deep.equal({ status: 'ready' });
      expect(await (await fetch(`${on.http}/healthz`)).json()).to.deep.equal({ status: 'ok' });
      const keyed = await fetch(`${on.http}/readyz`, { headers: on.admin.headers });
      expect(await keyed.json()).to.deep.equal({ status: 'ready' });
    });
  });

  describe('the peer of an HTTP request', () => {
    const noted = async (on: TestServer, forwarded: string, path: string, body: object) => {
      await fetch(on.http + path, {
        method: path.startsWith('/api') ? 'PUT' : 'POST',
        headers: { 'content-type': 'application/json', 'x-forwarded-for': forwarded },
        body: JSON.stringify(body),
      });
      const answer = await fetch(`${on.http}/api/scheduler/stats/capacity/changes`);
      const { changes } = (await answer.json()) as { changes: { requested_by: string }[] };
      return changes[0]?.requested_by;
    };
    const overRest = (on: TestServer, forwarded: string, total: number) =>
      noted(on, forwarded, '/api/scheduler/stats/capacity', { total });
    const overConnect = (on: TestServer, forwarded: string, total: number) =>
      noted(on, forwarded, '/leasehold.v1.StatsService/SetCapacity', { total });

    it('is what a trusted proxy says, over REST and Connect', async () => {
      await using on = await startTestServer(engine, { settings: { trustedProxies: ['127.0.0.0/8'] } });
      expect(await overRest(on, '203.0.113.9, 198.51.100.7', 51)).to.equal('198.51.100.7');
      expect(await overConnect(on, '198.51.100.8', 52)).to.equal('198.51.100.8');
    });

    it('is the address of the connection otherwise', async () => {
      await using on = await startTestServer(engine);
      expect(await overRest(on, '198.51.100.7', 51)).to.equal('127.0.0.1');
      expect(await overConnect(on, '198.51.100.7', 52)).to.equal('127.0.0.1');
    });
  });
});

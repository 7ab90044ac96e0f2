/**
 * Every RPC and every route, with a key of every role, over gRPC, Connect and REST: the verdict is that of
 * the table, and the same by every way in.
 */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { create, toBinary } from '@bufbuild/protobuf';
import { credentials, Client as GrpcClient, Metadata, type ServiceError } from '@grpc/grpc-js';
import { expect } from 'chai';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { KeysService } from '../../gen/leasehold/v1/keys_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { QuotasService } from '../../gen/leasehold/v1/quotas_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';
import { accessOfRoute, accessOfRpc, routeAccess } from '../../src/domain/access/methods.ts';
import { type Access, type Role, reachOf, roles } from '../../src/domain/access/roles.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

const services = [JobsService, LeasesService, StatsService, FileLeasesService, KeysService, QuotasService];
const methods = services.flatMap((service) => service.methods);

type Verdict = 'allowed' | 'permission_denied' | 'unauthenticated';

const expected = (role: Role, access: Access): Verdict => {
  if (access === 'open' || access === 'any') return 'allowed';
  return reachOf([role], access) === undefined ? 'permission_denied' : 'allowed';
};

/** Any other answer means that the call reached its handler. */
const verdictOf = (code: string | undefined): Verdict =>
  code === 'permission_denied' || code === 'unauthenticated' ? code : 'allowed';

const codeIn = (message: string): string | undefined => /^(\w+): /.exec(message)?.[1];

describe('access', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let grpc: GrpcClient;
    const keys = new Map<Role, TestKey>();

    before(async () => {
      server = await startKeyedServer(engine, { settings: { rateAnonymous: 0 } });
      grpc = new GrpcClient(server.grpc, credentials.createInsecure());
      for (const role of roles)
        keys.set(role, await createKey(server.database, { name: role, roles: [role] }));
      const last = keys.get('admin') as TestKey;
      await eventually('the server knows the keys', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: last.headers });
        return status === 200 || undefined;
      });
    });
    after(async () => {
      grpc.close();
      await server.stop();
    });

    const overGrpc = async (name: string, headers: Record<string, string>): Promise<Verdict> => {
      const method = methods.find((one) => `${one.parent.typeName}/${one.name}` === name);
      if (!method) throw new Error(`there is no ${name}`);
      const metadata = new Metadata();
      for (const [key, value] of Object.entries(headers)) metadata.set(key, value);
      const bytes = Buffer.from(toBinary(method.input, create(method.input)));
      const options = { deadline: Date.now() + 10_000 };
      const error = await new Promise<ServiceError | undefined>((resolve) => {
        const asIs = (value: Buffer) => value;
        const stream = grpc.makeBidiStreamRequest(`/${name}`, asIs, asIs, metadata, options);
        stream.on('data', () => stream.cancel());
        stream.on('error', (failure: ServiceError) => resolve(failure));
        stream.on('end', () => resolve(undefined));
        stream.write(bytes);
        stream.end();
      });
      return verdictOf(error && codeIn(error.details));
    };

    const overConnect = async (name: string, headers: Record<string, string>): Promise<Verdict> => {
      const isStream = methods.some(
        (one) => `${one.parent.typeName}/${one.name}` === name && one.methodKind !== 'unary',
      );
      const gone = new AbortController();
      const response = await fetch(`${server.http}/${name}`, {
        method: 'POST',
        headers: { 'content-type': isStream ? 'application/connect+json' : 'application/json', ...headers },
        body: isStream ? Buffer.from([0, 0, 0, 0, 2, 0x7b, 0x7d]) : '{}',
        signal: gone.signal,
      });
      const reader = response.body?.getReader();
      const first = await reader?.read();
      gone.abort();
      const text = Buffer.from(first?.value ?? []).toString();
      const code = /"message":"(\w+): /.exec(text)?.[1];
      return verdictOf(code);
    };

    const overRest = async (route: string, headers: Record<string, string>): Promise<Verdict> => {
      const [method = '', path = ''] = route.split(' ');
      const response = await fetch(`${server.http}${path.replace(/\{\w+\}/g, 'none')}`, {
        method,
        headers: { ...headers, ...(method === 'GET' ? {} : { 'content-type': 'application/json' }) },
        ...(method === 'GET' ? {} : { body: '{}' }),
      });
      const text = await response.text();
      return verdictOf(response.ok ? undefined : (JSON.parse(text) as { code?: string }).code);
    };

    for (const role of roles) {
      it(`gives ${role} what the table gives it, over gRPC and Connect`, async () => {
        const { headers } = keys.get(role) as TestKey;
        for (const { parent, name } of methods) {
          const rpc = `${parent.typeName}/${name}`;
          const verdict = expected(role, accessOfRpc(rpc));
          expect(await overGrpc(rpc, headers), `gRPC ${rpc}`).to.equal(verdict);
          expect(await overConnect(rpc, headers), `Connect ${rpc}`).to.equal(verdict);
        }
      });

      it(`gives ${role} what the table gives it, over REST`, async () => {
        const { headers } = keys.get(role) as TestKey;
        for (const route of Object.keys(routeAccess)) {
          const [method = '', path = ''] = route.split(' ');
          expect(await overRest(route, headers), route).to.equal(expected(role, accessOfRoute(method, path)));
        }
      });
    }

    it('answers nothing but health to a caller without a valid key', async () => {
      const { text } = keys.get('admin') as TestKey;
      const wrong: Record<string, string>[] = [
        {},
        { authorization: text },
        { authorization: `Basic ${text}` },
        { authorization: `Bearer ${text}x` },
        { authorization: 'Bearer lhk_' },
        { authorization: `Bearer ${'a'.repeat(10_000)}` },
      ];
      for (const headers of wrong) {
        for (const { parent, name } of methods) {
          const rpc = `${parent.typeName}/${name}`;
          expect(await overGrpc(rpc, headers), `gRPC ${rpc}`).to.equal('unauthenticated');
          expect(await overConnect(rpc, headers), `Connect ${rpc}`).to.equal('unauthenticated');
        }
        for (const route of Object.keys(routeAccess)) {
          const isOpen = routeAccess[route] === 'open';
          expect(await overRest(route, headers), route).to.equal(isOpen ? 'allowed' : 'unauthenticated');
        }
      }
      const { status } = await fetch(`${server.http}/nowhere`);
      expect(status).to.equal(401);
    });

    it('names every route of its description in the table, and no other', async () => {
      const { headers } = keys.get('observer') as TestKey;
      const response = await fetch(`${server.http}/openapi.json`, { headers });
      const { paths } = (await response.json()) as { paths: Record<string, object> };
      const routes = Object.entries(paths).flatMap(([path, operations]) =>
        Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
      );
      expect(routes.sort()).to.deep.equal(Object.keys(routeAccess).sort());
    });

    it('refuses a call before it has received its body', async () => {
      const { port, hostname } = new URL(server.http);
      const call = request({
        host: hostname,
        port,
        method: 'POST',
        path: '/api/scheduler/jobs/submit',
        headers: { 'content-type': 'application/json', 'content-length': 1_000_000 },
      });
      call.on('error', () => {});
      call.flushHeaders();
      const [response] = (await once(call, 'response')) as [IncomingMessage];
      call.destroy();
      expect(response.statusCode).to.equal(401);
    });
  });
});

/**
 * Every call that names something, by every role, on what its key reaches and on what it does not, over gRPC,
 * Connect and REST: the verdict is that of the table, and the same by every way in.
 */
import { fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { credentials, Client as GrpcClient, Metadata, type ServiceError } from '@grpc/grpc-js';
import { expect } from 'chai';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { accessOfRoute, accessOfRpc } from '../../src/domain/access/methods.ts';
import { type Access, type Role, reachOf, roles } from '../../src/domain/access/roles.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';
import { type Case, cases, type Target, type Verdict } from './scope-cases.ts';

const services = [JobsService, LeasesService, StatsService, FileLeasesService];
const methods = services.flatMap((service) => service.methods);

const holds = (role: Role, access: Access): boolean =>
  access === 'open' || access === 'any' || reachOf([role], access) !== undefined;

const verdictOf = (code: string | undefined): Verdict => {
  if (code === 'permission_denied') return code;
  return code === 'job_not_found' || code === 'lease_not_found' ? 'not_found' : 'reached';
};

describe('scopes, by every role and every way in', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let grpc: GrpcClient;
    const keys = new Map<Role, TestKey>();
    const targets = new Map<string, Target>();

    before(async () => {
      server = await startKeyedServer(engine);
      grpc = new GrpcClient(server.grpc, credentials.createInsecure());
      for (const role of roles) {
        const scopes = { addon_ids: ['red'], streams: ['*'], job_types: ['*'], repositories: ['red/*'] };
        keys.set(
          role,
          await createKey(server.database, { name: role, roles: [role], scopes, workerIds: ['red-*'] }),
        );
      }
      const client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
      for (const tenant of ['red', 'blue']) {
        const submit = async () => {
          const wish = { addonId: tenant, jobType: 'render', costUnits: 1, maxAttempts: 1 };
          return (await client.jobs.submitJob(wish)).job?.jobId ?? '';
        };
        const acquire = async () => {
          const { outcome } = await client.leases.acquireLease({ workerId: `${tenant}-1`, addonId: tenant });
          if (outcome.case !== 'granted') throw new Error('no lease was granted');
          const { leaseId = '', leaseToken = '' } = outcome.value.lease ?? {};
          return { leaseId, leaseToken };
        };
        const failed = await submit();
        const { leaseId: ended } = await acquire();
        await client.leases.heartbeat({ leaseId: ended, workerId: `${tenant}-1` });
        const error = { message: 'failed', retryable: false };
        await client.leases.releaseLease({ leaseId: ended, workerId: `${tenant}-1`, status: 2, error });
        await submit();
        const { leaseId: lease, leaseToken } = await acquire();
        await client.leases.heartbeat({ leaseId: lease, workerId: `${tenant}-1` });
        targets.set(tenant, { tenant, failed, lease, leaseToken, queued: await submit() });
      }
      client.close();
      const { headers } = keys.get('admin') as TestKey;
      await eventually('the server knows the keys', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers });
        return status === 200 || undefined;
      });
    });
    after(async () => {
      grpc.close();
      await server.stop();
    });

    const methodOf = (rpc: string) => {
      const found = methods.find((one) => `${one.parent.typeName}/${one.name}` === rpc);
      if (!found) throw new Error(`there is no ${rpc}`);
      return found;
    };

    const overGrpc = async ({ rpc, message }: Case, target: Target, key: TestKey): Promise<Verdict> => {
      const { input } = methodOf(rpc);
      const metadata = new Metadata();
      metadata.set('authorization', key.headers.authorization);
      const bytes = Buffer.from(toBinary(input, fromJson(input, message(target))));
      const options = { deadline: Date.now() + 10_000 };
      const error = await new Promise<ServiceError | undefined>((resolve) => {
        const asIs = (value: Buffer) => value;
        const stream = grpc.makeBidiStreamRequest(`/${rpc}`, asIs, asIs, metadata, options);
        stream.on('data', () => stream.cancel());
        stream.on('error', (failure: ServiceError) => resolve(failure));
        stream.on('end', () => resolve(undefined));
        stream.write(bytes);
        stream.end();
      });
      return verdictOf(/^(\w+): /.exec(error?.details ?? '')?.[1]);
    };

    const overConnect = async ({ rpc, message }: Case, target: Target, key: TestKey): Promise<Verdict> => {
      const { input, methodKind } = methodOf(rpc);
      // What the method does not know would be refused: the message is read before it is sent.
      const json = JSON.stringify(message(target) satisfies JsonValue);
      expect(() => fromJson(input, JSON.parse(json) as JsonValue)).not.to.throw();
      const isStream = methodKind !== 'unary';
      const head = Buffer.alloc(5);
      head.writeUInt32BE(Buffer.byteLength(json), 1);
      const gone = new AbortController();
      const response = await fetch(`${server.http}/${rpc}`, {
        method: 'POST',
        headers: {
          'content-type': isStream ? 'application/connect+json' : 'application/json',
          ...key.headers,
        },
        body: isStream ? Buffer.concat([head, Buffer.from(json)]) : json,
        signal: gone.signal,
      });
      const first = await response.body?.getReader().read();
      gone.abort();
      return verdictOf(/"message":"(\w+): /.exec(Buffer.from(first?.value ?? []).toString())?.[1]);
    };

    const overRest = async (one: Case, target: Target, key: TestKey): Promise<Verdict> => {
      const [method = '', plain = ''] = (one.route ?? '').split(' ');
      const response = await fetch(`${server.http}${one.path?.(target) ?? plain}`, {
        method,
        headers: { ...key.headers, ...(one.body ? { 'content-type': 'application/json' } : {}) },
        ...(one.body ? { body: JSON.stringify(one.body(target)) } : {}),
      });
      const said = await response.text();
      return verdictOf(response.ok ? undefined : (JSON.parse(said) as { code?: string }).code);
    };

    for (const role of roles)
      for (const tenant of ['red', 'blue'])
        it(`gives ${role} the verdict of the table on what is of ${tenant}`, async () => {
          const [key, target] = [keys.get(role) as TestKey, targets.get(tenant) as Target];
          const wrong: string[] = [];
          for (const one of cases) {
            const within = tenant === 'red' ? (one.inside ?? 'reached') : one.outside;
            const check = async (name: string, access: Access, call: Promise<Verdict>) => {
              const expected = holds(role, access) ? within : 'permission_denied';
              const verdict = await call;
              if (verdict !== expected) wrong.push(`${name}: ${verdict}, not ${expected}`);
            };
            const access = accessOfRpc(one.rpc);
            await check(`gRPC ${one.rpc}`, access, overGrpc(one, target, key));
            if (methodOf(one.rpc).methodKind !== 'bidi_streaming')
              await check(`Connect ${one.rpc}`, access, overConnect(one, target, key));
            if (one.route === undefined) continue;
            const [method = '', path = ''] = one.route.split(' ');
            await check(one.route, accessOfRoute(method, path), overRest(one, target, key));
          }
          expect(wrong).to.deep.equal([]);
        });

    it('has a case for each RPC that names a job, a lease, a tenant, a worker, an owner or files', () => {
      const named = methods.filter(({ input }) =>
        input.fields.some(({ name }) =>
          ['job_id', 'lease_id', 'addon_id', 'worker_id', 'owner_id', 'repository'].includes(name),
        ),
      );
      const covered = new Set(cases.map(({ rpc }) => rpc));
      const missing = named
        .map((one) => `${one.parent.typeName}/${one.name}`)
        .filter((rpc) => !covered.has(rpc));
      // A worker sees its own leases in a list, whatever else it names; a list of workers needs all scopes.
      expect(missing).to.deep.equal([
        'leasehold.v1.LeasesService/ListLeases',
        'leasehold.v1.StatsService/ListWorkers',
      ]);
    });
  });
});

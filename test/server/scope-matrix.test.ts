/**
 * Every call that names something, by every role, on what its key reaches and on what it does not, over gRPC,
 * Connect and REST: the verdict is that of the table, and the same by every way in.
 */
import { fromJson, type JsonObject, type JsonValue, toBinary } from '@bufbuild/protobuf';
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

const services = [JobsService, LeasesService, StatsService, FileLeasesService];
const methods = services.flatMap((service) => service.methods);

/** What exists for one tenant. */
interface Target {
  tenant: string;
  queued: string;
  failed: string;
  lease: string;
}

/** `reached`: the call came to its handler, whatever it answered. */
type Verdict = 'reached' | 'permission_denied' | 'not_found';

interface Case {
  rpc: string;
  message: (target: Target) => JsonObject;
  /** The same call over REST. */
  route?: string;
  path?: (target: Target) => string;
  body?: (target: Target) => JsonObject;
  outside: Verdict;
  /** The verdict inside, where scopes that reach only some are not enough. */
  inside?: Verdict;
}

const jobs = 'leasehold.v1.JobsService';
const leases = 'leasehold.v1.LeasesService';
const files = 'leasehold.v1.FileLeasesService';
const stats = 'leasehold.v1.StatsService';

const submitted = ({ tenant }: Target) => ({ addon_id: tenant, job_type: 'render', cost_units: 1 });
const worker = ({ tenant }: Target) => ({ worker_id: `${tenant}-1` });
const owner = ({ tenant }: Target) => ({ owner_id: `${tenant}-1` });
const repository = ({ tenant }: Target) => ({ repository: `${tenant}/app` });
const addon = ({ tenant }: Target) => ({ addon_id: tenant });
const heartbeat = (target: Target) => ({ lease_id: target.lease, ...worker(target) });

const cases: readonly Case[] = [
  {
    rpc: `${jobs}/SubmitJob`,
    message: submitted,
    route: 'POST /api/scheduler/jobs/submit',
    body: submitted,
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/ClaimJobs`,
    message: (target) => ({ worker_id: 'red-1', ...addon(target), limit: 1 }),
    route: 'POST /api/scheduler/jobs/claim',
    body: (target) => ({ worker_id: 'red-1', ...addon(target), limit: 1 }),
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/GetJob`,
    message: ({ queued }) => ({ job_id: queued }),
    route: 'GET /api/scheduler/jobs/{job_id}',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}`,
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/ListJobs`,
    message: addon,
    route: 'GET /api/scheduler/jobs',
    path: ({ tenant }) => `/api/scheduler/jobs?addon_id=${tenant}`,
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/UpdateJobStatus`,
    message: ({ queued }) => ({ job_id: queued, state: 'JOB_STATE_PREPARING', worker_id: 'red-1' }),
    route: 'POST /api/scheduler/jobs/{job_id}/status',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}/status`,
    body: () => ({ state: 'PREPARING', worker_id: 'red-1' }),
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/CancelJob`,
    message: ({ failed }) => ({ job_id: failed }),
    route: 'POST /api/scheduler/jobs/{job_id}/cancel',
    path: ({ failed }) => `/api/scheduler/jobs/${failed}/cancel`,
    body: () => ({}),
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/RetryJob`,
    message: ({ failed }) => ({ job_id: failed }),
    route: 'POST /api/scheduler/jobs/{job_id}/retry',
    path: ({ failed }) => `/api/scheduler/jobs/${failed}/retry`,
    body: () => ({}),
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/RetryDeadLetters`,
    message: addon,
    route: 'POST /api/scheduler/jobs/retry',
    path: () => '/api/scheduler/jobs/retry',
    body: addon,
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/ListJobEvents`,
    message: ({ queued }) => ({ job_id: queued }),
    route: 'GET /api/scheduler/jobs/{job_id}/events',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}/events`,
    outside: 'not_found',
  },
  { rpc: `${jobs}/WatchJob`, message: ({ queued }) => ({ job_id: queued }), outside: 'not_found' },
  {
    rpc: `${leases}/RequestLease`,
    message: ({ queued }) => ({ job_id: queued, worker_id: 'red-1' }),
    route: 'POST /api/scheduler/lease/request',
    body: ({ queued }) => ({ job_id: queued, worker_id: 'red-1' }),
    outside: 'not_found',
  },
  {
    rpc: `${leases}/AcquireLease`,
    message: (target) => ({
      worker_id: 'red-1',
      ...addon(target),
      constraints_capabilities: { x_available: true },
    }),
    outside: 'permission_denied',
  },
  {
    rpc: `${leases}/AcquireLease`,
    message: worker,
    route: 'POST /api/system/scheduler/leases/request',
    body: worker,
    outside: 'permission_denied',
  },
  {
    rpc: `${leases}/Heartbeat`,
    message: heartbeat,
    route: 'POST /api/scheduler/lease/{lease_id}/heartbeat',
    path: ({ lease }) => `/api/scheduler/lease/${lease}/heartbeat`,
    body: worker,
    outside: 'permission_denied',
  },
  {
    rpc: `${leases}/ReleaseLease`,
    message: (target) => ({ ...heartbeat(target), lease_token: 'none', status: 'FINAL_STATUS_SUCCEEDED' }),
    outside: 'reached',
  },
  {
    rpc: `${leases}/ReleaseLease`,
    message: (target) => ({ ...heartbeat(target), job_id: target.failed, status: 'FINAL_STATUS_SUCCEEDED' }),
    route: 'POST /api/scheduler/lease/{lease_id}/release',
    path: ({ lease }) => `/api/scheduler/lease/${lease}/release`,
    body: (target) => ({ ...worker(target), job_id: target.failed, status: 'SUCCEEDED' }),
    outside: 'permission_denied',
  },
  {
    rpc: `${leases}/GetLease`,
    message: ({ lease }) => ({ lease_id: lease }),
    route: 'GET /api/scheduler/lease/{lease_id}',
    path: ({ lease }) => `/api/scheduler/lease/${lease}`,
    outside: 'not_found',
  },
  {
    rpc: `${leases}/StreamWork`,
    message: (target) => ({ worker_id: 'red-1', credits: [{ jobs: 1, ...addon(target), max_units: 1 }] }),
    outside: 'permission_denied',
  },
  {
    rpc: `${stats}/Explain`,
    message: ({ queued }) => ({ job_id: queued }),
    route: 'GET /api/scheduler/jobs/{job_id}/explain',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}/explain`,
    outside: 'not_found',
  },
  {
    rpc: `${stats}/GetSnapshot`,
    message: addon,
    route: 'GET /api/scheduler/stats/snapshot',
    path: ({ tenant }) => `/api/scheduler/stats/snapshot?addon_id=${tenant}`,
    outside: 'permission_denied',
  },
  {
    rpc: `${stats}/GetTimeseries`,
    message: (target) => ({ ...addon(target), metric: 'jobs_submitted', bucket: '1d', range: '7d' }),
    route: 'GET /api/scheduler/stats/timeseries',
    path: ({ tenant }) =>
      `/api/scheduler/stats/timeseries?addon_id=${tenant}&metric=jobs_submitted&bucket=1d&range=7d`,
    outside: 'permission_denied',
  },
  { rpc: `${stats}/WatchSnapshots`, message: addon, outside: 'permission_denied' },
  {
    rpc: `${stats}/SetCapacity`,
    message: () => ({ total: 100 }),
    route: 'PUT /api/scheduler/stats/capacity',
    path: () => '/api/scheduler/stats/capacity',
    body: () => ({ total: 100 }),
    inside: 'permission_denied',
    outside: 'permission_denied',
  },
  {
    rpc: `${files}/AcquireFileLeases`,
    message: (target) => ({ ...owner(target), ...repository(target), paths: ['a.ts'] }),
    route: 'POST /api/files/acquire',
    body: (target) => ({ ...owner(target), ...repository(target), paths: ['a.ts'] }),
    outside: 'permission_denied',
  },
  ...(
    [
      ['HeartbeatOwner', 'POST /api/files/heartbeat', '/api/files/heartbeat'],
      ['RecordActivity', 'POST /api/files/owners/{owner_id}/activity', 'activity'],
      ['StopOwner', 'POST /api/files/owners/{owner_id}/stop', 'stop'],
      ['EndOwner', 'POST /api/files/owners/{owner_id}/end', 'end'],
    ] as const
  ).map(
    ([name, route, path]): Case => ({
      rpc: `${files}/${name}`,
      message: owner,
      route,
      path: ({ tenant }) => (path.startsWith('/') ? path : `/api/files/owners/${tenant}-1/${path}`),
      body: owner,
      outside: 'permission_denied',
    }),
  ),
  {
    rpc: `${files}/ReleaseFileLeases`,
    message: (target) => ({ ...owner(target), ...repository(target), reason: 'FILE_RELEASE_REASON_FAILED' }),
    route: 'POST /api/files/release',
    body: (target) => ({ ...owner(target), ...repository(target), reason: 'FAILED' }),
    outside: 'permission_denied',
  },
  {
    rpc: `${files}/ListFileLeases`,
    message: repository,
    route: 'GET /api/files/leases',
    path: ({ tenant }) => `/api/files/leases?repository=${tenant}/app`,
    outside: 'permission_denied',
  },
  {
    rpc: `${files}/ListBlockers`,
    message: repository,
    route: 'GET /api/files/blockers',
    path: ({ tenant }) => `/api/files/blockers?repository=${tenant}/app`,
    outside: 'permission_denied',
  },
  { rpc: `${files}/WatchFileLeases`, message: repository, outside: 'permission_denied' },
];

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
          return outcome.value.lease?.leaseId ?? '';
        };
        const failed = await submit();
        const ended = await acquire();
        await client.leases.heartbeat({ leaseId: ended, workerId: `${tenant}-1` });
        const error = { message: 'failed', retryable: false };
        await client.leases.releaseLease({ leaseId: ended, workerId: `${tenant}-1`, status: 2, error });
        await submit();
        const lease = await acquire();
        await client.leases.heartbeat({ leaseId: lease, workerId: `${tenant}-1` });
        targets.set(tenant, { tenant, failed, lease, queued: await submit() });
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
        it(`gives ${role} on what is ${tenant === 'red' ? 'inside' : 'outside'} the verdict of the table`, async () => {
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

    it('has a case for each RPC that names a job, a lease, a submitter, a worker, an owner or a repository', () => {
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
      expect(missing).to.deep.equal([`${leases}/ListLeases`, `${stats}/ListWorkers`]);
    });
  });
});

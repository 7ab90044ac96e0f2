/**
 * Two tenants on one server, with keys that reach only their own jobs and files. No byte of one tenant's
 * names, payloads or results may reach the other, by any route or RPC.
 */
import { expect } from 'chai';
import { connectLeasehold, type LeaseholdClient } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

interface Tenant {
  name: string;
  key: TestKey;
  client: LeaseholdClient;
}

interface Answer {
  status: number;
  text: string;
}

describe('scopes', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let red: Tenant;
    let blue: Tenant;

    before(async () => {
      server = await startKeyedServer(engine);
      const tenant = async (name: string): Promise<Tenant> => {
        const key = await createKey(server.database, {
          name,
          roles: ['submitter', 'worker'],
          scopes: {
            addon_ids: [name],
            streams: [`${name}-*`],
            job_types: ['*'],
            repositories: [`${name}/*`],
          },
          workerIds: [`${name}-*`],
        });
        return { name, key, client: connectLeasehold(server.grpc, { apiKey: key.text }) };
      };
      red = await tenant('red');
      blue = await tenant('blue');
      await eventually('the server knows the keys', async () => {
        const { status } = await ask(blue, 'GET', '/api/access/whoami');
        return status === 200 || undefined;
      });
    });
    after(() => server.stop());

    async function ask(tenant: Tenant, method: string, path: string, body?: object): Promise<Answer> {
      const response = await fetch(`${server.http}${path}`, {
        method,
        headers: { ...tenant.key.headers, ...(body ? { 'content-type': 'application/json' } : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      return { status: response.status, text: await response.text() };
    }

    const codeOf = ({ text }: Answer): string | undefined => (JSON.parse(text) as { code?: string }).code;

    const submit = async (tenant: Tenant, more: object = {}): Promise<string> => {
      const { status, text } = await ask(tenant, 'POST', '/api/scheduler/jobs/submit', {
        addon_id: tenant.name,
        job_type: 'render',
        cost_units: 1,
        payload: { canary: `${tenant.name}-canary` },
        ...more,
      });
      expect(status, text).to.equal(201);
      return (JSON.parse(text) as { job: { job_id: string } }).job.job_id;
    };

    it('refuse what is named outside of them', async () => {
      const wrong: [string, object][] = [
        ['/api/scheduler/jobs/submit', { addon_id: 'blue', job_type: 'x', cost_units: 1 }],
        ['/api/scheduler/jobs/submit', { addon_id: 'red', job_type: 'x', cost_units: 1, stream: 'blue-1' }],
        ['/api/scheduler/jobs/claim', { worker_id: 'blue-1' }],
        ['/api/scheduler/jobs/claim', { worker_id: 'red-1', addon_id: 'blue' }],
        ['/api/system/scheduler/leases/request', { worker_id: 'red-1', streams: ['blue-1'] }],
        ['/api/files/acquire', { owner_id: 'red-1', repository: 'blue/app', paths: ['a'] }],
        ['/api/files/acquire', { owner_id: 'blue-1', repository: 'red/app', paths: ['a'] }],
      ];
      for (const [path, body] of wrong)
        expect(codeOf(await ask(red, 'POST', path, body)), JSON.stringify(body)).to.equal(
          'permission_denied',
        );
    });

    it('answer ids outside of them as if they did not exist', async () => {
      const theirs = await submit(blue);
      const nowhere = '0190c1d2-7e1f-7abc-8def-0123456789ab';
      const shape = ({ status, text }: Answer, id: string) => [status, text.replaceAll(id, 'ID')];
      const asks: [string, string, object?][] = [
        ['GET', '/api/scheduler/jobs/ID'],
        ['GET', '/api/scheduler/jobs/ID/events'],
        ['GET', '/api/scheduler/jobs/ID/attempts'],
        ['GET', '/api/scheduler/jobs/ID/explain'],
        ['GET', '/api/system/scheduler/jobs/ID'],
        ['POST', '/api/scheduler/jobs/ID/cancel', {}],
        ['POST', '/api/scheduler/jobs/ID/status', { state: 'PREPARING', worker_id: 'red-1' }],
        ['POST', '/api/scheduler/lease/request', { job_id: 'ID', worker_id: 'red-1' }],
        ['POST', '/internal/worker/heartbeat', { job_id: 'ID', worker_id: 'red-1', lease_token: nowhere }],
      ];
      for (const [method, path, body] of asks) {
        const by = async (id: string) => {
          const filled = body && (JSON.parse(JSON.stringify(body).replaceAll('ID', id)) as object);
          return shape(await ask(red, method, path.replace('ID', id), filled), id);
        };
        expect(await by(theirs), `${method} ${path}`).to.deep.equal(await by(nowhere));
      }
    });

    it('give workers only jobs inside, whatever they ask for', async () => {
      const stream = 'blue-work';
      await submit(blue);
      await submit(blue, { stream });
      const [own, ownStream] = [await submit(red), await submit(red, { stream: 'red-work' })];
      const claim = { worker_id: 'red-1', limit: 50 };
      const { text } = await ask(red, 'POST', '/api/scheduler/jobs/claim', claim);
      const { jobs } = JSON.parse(text) as { jobs: { job_id: string; addon_id: string }[] };
      expect(jobs.map(({ addon_id }) => addon_id)).to.satisfy((ids: string[]) =>
        ids.every((id) => id === 'red'),
      );
      expect(jobs.map(({ job_id }) => job_id)).to.include(own);
      const granted = await red.client.leases.acquireLease({ workerId: 'red-1', streams: ['red-work'] });
      const lease = granted.outcome.case === 'granted' ? granted.outcome.value : undefined;
      expect(lease?.job?.jobId).to.equal(ownStream);
    });

    it('list only jobs, leases and files inside', async () => {
      await submit(blue);
      await submit(red);
      const files = { owner_id: 'blue-1', repository: 'blue/app', paths: ['blue-canary.ts'] };
      await ask(blue, 'POST', '/api/files/acquire', files);
      await blue.client.leases.acquireLease({ workerId: 'blue-9' });
      for (const path of [
        '/api/scheduler/jobs?limit=200',
        '/api/scheduler/jobs?addon_id=blue',
        '/api/scheduler/streams',
        '/api/files/leases',
        '/api/files/leases?repository=red/app',
        '/api/files/blockers?repository=red/app',
        '/api/scheduler/stats/snapshot?addon_id=red',
        '/api/scheduler/workers',
        '/api/scheduler/stats/queue',
        '/metrics',
      ]) {
        const { text } = await ask(red, 'GET', path);
        expect(text, path).to.not.include('blue');
      }
      const { jobs } = await red.client.jobs.listJobs({ limit: 200 });
      expect(jobs.length).to.be.greaterThan(0);
      expect(jobs.every(({ addonId }) => addonId === 'red')).to.equal(true);
      const { leases } = await red.client.leases.listLeases({});
      expect(leases.every(({ workerId }) => workerId.startsWith('red-'))).to.equal(true);
    });

    it('keep the leases of one worker from the other, over single calls and over streams', async () => {
      await submit(blue);
      const granted = await blue.client.leases.acquireLease({ workerId: 'blue-2' });
      if (granted.outcome.case !== 'granted') throw new Error('no lease was granted');
      const { leaseId = '', leaseToken = '' } = granted.outcome.value.lease ?? {};
      for (const workerId of ['blue-2', 'red-1']) {
        const beat = red.client.leases.heartbeat({ leaseId, workerId });
        expect(
          await beat.then(
            () => 'kept',
            (error: Error) => error.message,
          ),
        ).to.match(/permission_denied|lease_not_found/);
        const release = red.client.leases.releaseLease({ leaseId, workerId, status: 1 });
        expect(
          await release.then(
            () => 'ended',
            (error: Error) => error.message,
          ),
        ).to.match(/permission_denied|lease_not_found/);
      }
      async function* frames() {
        yield { heartbeats: [{ leaseId, workerId: 'blue-2' }] };
      }
      const codes: string[] = [];
      for await (const { verdicts } of red.client.leases.streamHeartbeats(frames()))
        for (const { outcome } of verdicts)
          codes.push(outcome.case === 'lost' ? outcome.value.code : 'extended');
      expect(codes).to.deep.equal(['worker_mismatch']);
      const beat = await blue.client.leases.heartbeat({ leaseId, workerId: 'blue-2', leaseToken });
      expect(beat.expiresAt).to.not.equal(undefined);
    });

    it('end the streams of a revoked key within five seconds', async () => {
      const key = await createKey(server.database, {
        name: `short-${Date.now()}`,
        roles: ['worker'],
        scopes: { addon_ids: ['red'], job_types: ['*'] },
        workerIds: ['red-*'],
      });
      const client = connectLeasehold(server.grpc, { apiKey: key.text });
      await eventually('the server knows the key', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: key.headers });
        return status === 200 || undefined;
      });
      let revokedAt = Number.POSITIVE_INFINITY;
      async function* frames() {
        for (;;) {
          yield { workerId: 'red-3', heartbeats: [] };
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
      let last = 0;
      const stream = (async () => {
        for await (const _ of client.leases.streamWork(frames())) last = performance.now();
      })();
      const ended = stream.then(
        () => 'ended',
        (error: Error) => error.message,
      );
      const { client: _, ...admin } = { ...red, key: server.admin };
      const revoke = await fetch(`${server.http}/api/access/keys/${key.keyId}/revoke`, {
        method: 'POST',
        headers: { ...admin.key.headers, 'content-type': 'application/json' },
        body: '{}',
      });
      expect(revoke.status).to.equal(200);
      revokedAt = performance.now();
      expect(await ended).to.include('unauthenticated');
      expect(performance.now() - revokedAt).to.be.lessThan(5_000);
      expect(last - revokedAt).to.be.lessThan(5_000);
      const again = client.leases.acquireLease({ workerId: 'red-3' });
      expect(
        await again.then(
          () => 'granted',
          (error: Error) => error.message,
        ),
      ).to.include('unauthenticated');
    });
  });
});

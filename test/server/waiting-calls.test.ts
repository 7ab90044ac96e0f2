/** Calls that wait for a job end when their key is revoked, by every way in. */
import { expect } from 'chai';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

describe('calls that wait for a job', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    before(async () => {
      server = await startKeyedServer(engine);
    });
    after(() => server.stop());

    const post = async ({ headers }: TestKey, path: string, body: object): Promise<string> => {
      const response = await fetch(`${server.http}${path}`, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      return response.text();
    };

    it('end when their key is revoked, and get no job that comes later', async () => {
      const key = await createKey(server.database, { name: 'w', roles: ['worker'] });
      await eventually('the server knows the key', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: key.headers });
        return status === 200 || undefined;
      });
      const client = connectLeasehold(server.grpc, { apiKey: key.text });
      const wait = { worker_id: 'w', wait_ms: 20_000 };
      const began = performance.now();
      const calls = [
        client.leases.acquireLease({ workerId: 'w', waitMs: 20_000 }).then(
          () => 'answered',
          (error: Error) => error.message,
        ),
        post(key, '/leasehold.v1.LeasesService/AcquireLease', { workerId: 'w', waitMs: 20_000 }),
        post(key, '/api/system/scheduler/leases/request', wait),
        post(key, '/internal/worker/claim', {
          worker_id: 'w',
          streams: ['s'],
          max_wait_ms: 20_000,
        }),
      ];
      await eventually('all of them wait', async () => {
        const metrics = await fetch(`${server.http}/metrics`, { headers: server.admin.headers });
        return (await metrics.text()).includes('leasehold_waiting_claims 4') || undefined;
      });
      await post(server.admin, `/api/access/keys/${key.keyId}/revoke`, {});
      for (const answer of await Promise.all(calls)) expect(answer).to.include('unauthenticated');
      expect(performance.now() - began).to.be.lessThan(15_000);
      client.close();
    });
  });
});

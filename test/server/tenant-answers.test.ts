/** Answers that are about a tenant's own job or file, and could name what belongs to another. */
import { expect } from 'chai';
import { connectLeasehold, type LeaseholdClient } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

interface Tenant {
  key: TestKey;
  client: LeaseholdClient;
}

describe('answers to one of two tenants', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let red: Tenant;
    let blue: Tenant;

    const tenant = async (name: string): Promise<Tenant> => {
      const key = await createKey(server.database, {
        name,
        roles: ['submitter', 'worker'],
        // They share a submitter's name, and are told apart by their types.
        scopes: {
          addon_ids: [name, 'shared'],
          streams: [],
          job_types: [`${name}-*`],
          repositories: [`${name}/*`],
        },
        workerIds: [`${name}-*`],
      });
      return { key, client: connectLeasehold(server.grpc, { apiKey: key.text }) };
    };

    before(async () => {
      server = await startKeyedServer(engine, { settings: { capacityTotal: 10 } });
      red = await tenant('red');
      blue = await tenant('blue');
      await eventually('the server knows the keys', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: blue.key.headers });
        return status === 200 || undefined;
      });
    });
    after(() => server.stop());

    const ask = async ({ key }: Tenant, method: string, path: string, body?: object) => {
      const response = await fetch(`${server.http}${path}`, {
        method,
        headers: { ...key.headers, ...(body ? { 'content-type': 'application/json' } : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      const text = await response.text();
      return { status: response.status, text, body: JSON.parse(text) as Record<string, unknown> };
    };

    const submit = async ({ client }: Tenant, addonId: string, costUnits: number): Promise<string> => {
      const { job } = await client.jobs.submitJob({ addonId, jobType: `${addonId}-work`, costUnits });
      return job?.jobId ?? '';
    };

    it('explain a waiting job by counts, without names of the other tenant', async () => {
      await submit(blue, 'blue', 8);
      const { outcome } = await blue.client.leases.acquireLease({ workerId: 'blue-worker' });
      const lease = outcome.case === 'granted' ? outcome.value.lease : undefined;
      const first = await submit(blue, 'blue', 9);
      const own = await submit(red, 'red', 7);
      const { text } = await ask(red, 'GET', `/api/scheduler/jobs/${own}/explain`);
      for (const name of ['blue', first, lease?.leaseId ?? 'no lease']) expect(text).to.not.include(name);
      expect(text).to.include('1 job is ahead of it').and.to.include('needs 9 units');
      expect(text).to.include('without a heartbeat, a lease expires next');
      const byGrpc = await red.client.stats.explain({ subject: { case: 'jobId', value: own } });
      expect(JSON.stringify(byGrpc, (_, value) => (typeof value === 'bigint' ? `${value}` : value)))
        .to.include('1 job is ahead of it')
        .and.to.not.include('blue')
        .and.to.not.include(first);
      const theirs = await ask(blue, 'GET', `/api/scheduler/jobs/${first}/explain`);
      expect(theirs.text).to.include('the lease of blue-worker expires next');
    });

    it('hide the job behind a client_request_id that the other tenant has used', async () => {
      const job = { addon_id: 'shared', cost_units: 1, client_request_id: 'same' };
      const theirs = { ...job, job_type: 'blue-work', payload: { secret: 'blue' } };
      const { body } = await ask(blue, 'POST', '/api/scheduler/jobs/submit', theirs);
      const { job_id: jobId } = body.job as { job_id: string };
      const mine = { ...job, job_type: 'red-work' };
      const answers = [
        await ask(red, 'POST', '/api/scheduler/jobs/submit', mine),
        await ask(red, 'POST', '/api/system/scheduler/jobs', {
          addon_id: 'shared',
          type: 'red-work',
          requested_units: 1,
          idempotency_key: 'same',
        }),
      ];
      for (const { status, text } of answers) {
        expect(status, text).to.equal(409);
        expect(text).to.include('duplicate_request').and.to.not.include(jobId).and.to.not.include('blue');
      }
      const message = {
        addonId: 'shared',
        jobType: 'red-work',
        costUnits: 1,
        clientRequestId: 'same',
        onDuplicate: 1,
      };
      for (const onDuplicate of [1, 2]) {
        const one = { ...message, onDuplicate };
        const single = await red.client.jobs.submitJob(one).then(
          ({ job: first }) => first?.jobId ?? '',
          (error: Error) => error.message,
        );
        expect(single).to.include('duplicate_request').and.to.not.include(jobId);
        const { outcomes } = await red.client.jobs.submitJobs({ jobs: [one] });
        expect(JSON.stringify(outcomes)).to.include('duplicate_request').and.to.not.include(jobId);
      }
    });

    it('do not reveal by a wrong token whether a job exists', async () => {
      const theirs = await submit(blue, 'blue', 1);
      const nowhere = '0190c1d2-7e1f-7abc-8def-0123456789ab';
      const shapes = await Promise.all(
        [theirs, nowhere].map(async (jobId) => {
          const body = { worker_id: 'red-1', job_id: jobId, lease_token: nowhere };
          const { status, text } = await ask(red, 'POST', '/internal/worker/heartbeat', body);
          return [status, text.replaceAll(jobId, 'ID')];
        }),
      );
      expect(shapes[0]).to.deep.equal(shapes[1]);
    });

    it('do not name the owner of a file of another tenant that is asked to be released', async () => {
      const theirs = { owner_id: 'blue-owner', repository: 'blue/app', paths: ['a'] };
      expect((await ask(blue, 'POST', '/api/files/acquire', theirs)).status).to.equal(200);
      const mine = { owner_id: 'red-owner', repository: 'red/app', paths: ['a'] };
      expect((await ask(red, 'POST', '/api/files/acquire', mine)).status).to.equal(200);
      const release = { owner_id: 'red-owner', repository: 'blue/app', paths: ['a'], reason: 'COMMITTED' };
      const { status, text } = await ask(red, 'POST', '/api/files/release', release);
      expect(status, text).to.equal(403);
      expect(text).to.not.include('blue-owner');
    });
  });
});

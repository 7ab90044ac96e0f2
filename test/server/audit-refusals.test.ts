/** Refused calls, new addresses of keys and insecure starts in the audit, by every way in. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { FinalStatus } from '../../gen/leasehold/v1/jobs_pb.js';
import type { StreamWorkRequestSchema } from '../../gen/leasehold/v1/leases_pb.js';
import { connectLeasehold, type LeaseholdClient } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { failure } from '../support/failure.ts';
import { type Body, get, jobsPath } from '../support/jobs-api.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually, startTestServer } from '../support/server.ts';

const json = { 'content-type': 'application/json' };
const traceId = '0af7651916cd43dd8448eb211c80319c';
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;
const nowhere = '00000000-0000-4000-8000-000000000000';

/** A stream of work that sends one frame and stays open. */
const work = (client: LeaseholdClient, frame: MessageInitShape<typeof StreamWorkRequestSchema>) =>
  client.leases.streamWork(
    (async function* () {
      yield frame;
      await new Promise(() => {});
    })(),
  );

onEveryEngine((engine) => {
  describe('refused calls in the audit', () => {
    let server: KeyedServer;
    let worker: TestKey;
    beforeEach(async () => {
      server = await startKeyedServer(engine, { settings: { rateAnonymous: 0 } });
      worker = await createKey(server.database, {
        name: 'gpu',
        roles: ['worker', 'submitter'],
        scopes: { addon_ids: ['shop'], job_types: ['*'] },
        workerIds: ['gpu-*'],
      });
      await eventually('the server knows the key', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: worker.headers });
        return status === 200 || undefined;
      });
      // The calls before the key was known were refused, too.
      await eventually('these are written', async () => {
        const found = await events('outcome=denied');
        return found.every(({ detail }) => detail === 'unknown') || undefined;
      });
    });
    afterEach(() => server.stop());

    const events = async (query: string): Promise<Body[]> => {
      const { headers } = server.admin;
      const response = await fetch(`${server.http}/api/access/audit?limit=200&${query}`, { headers });
      return ((await response.json()) as Body).events.filter(({ detail }: Body) => detail !== 'unknown');
    };
    const denied = (action: string, count: number): Promise<Body[]> =>
      eventually(`${count} events of ${action}`, async () => {
        const found = await events(`outcome=denied&action=${action}`);
        expect(found.length).to.be.at.most(count);
        return found.length === count ? found.reverse() : undefined;
      });
    const post = (path: string, body: object, headers: Record<string, string> = worker.headers) =>
      fetch(`${server.http}${path}`, {
        method: 'POST',
        headers: { ...json, ...headers },
        body: JSON.stringify(body),
      });

    it('have method, address, reason and trace, and no part of a credential', async () => {
      const expired = await createKey(server.database, { name: 'e', roles: ['admin'], expiresAtMs: 1 });
      const wrong: [string, string, Record<string, string>][] = [
        ['/api/scheduler/jobs?addon_id=canary', 'GET', {}],
        ['/leasehold.v1.JobsService/GetJob', 'POST', { authorization: 'Basic canary' }],
        ['/canary/path', 'GET', { authorization: 'Bearer lhk_canary' }],
      ];
      for (const [path, method, headers] of wrong) {
        const response = await fetch(`${server.http}${path}`, {
          method,
          headers: { ...headers, traceparent, ...(method === 'POST' ? json : {}) },
          ...(method === 'POST' ? { body: '{}' } : {}),
        });
        expect(response.status, path).to.equal(401);
      }
      const client = connectLeasehold(server.grpc, { apiKey: expired.text });
      await eventually('the key is known and has expired', async () => {
        await failure(client.stats.getCapacity({}));
        return (await events('outcome=denied')).some(({ detail }) => detail === 'expired') || undefined;
      });
      client.close();
      const [missing, basic, malformed, old] = await denied('access.unauthenticated', 4);
      const anonymous = { kind: 'anonymous', id: '', name: '' };
      expect(missing).to.deep.include({
        principal: anonymous,
        peer: '127.0.0.1',
        method: 'GET /api/scheduler/jobs',
        detail: 'missing',
        target: null,
        trace_id: traceId,
        left_out: 0,
      });
      expect(basic).to.include({ method: 'leasehold.v1.JobsService/GetJob', detail: 'no bearer' });
      expect(malformed).to.include({ method: 'other', detail: 'malformed' });
      expect(old).to.deep.include({
        principal: anonymous,
        peer: '127.0.0.1',
        method: 'leasehold.v1.StatsService/GetCapacity',
        detail: 'expired',
        target: expired.keyId,
      });
      const [row] = await server.database.query<{ text: string }>(
        'select string_agg(event::text, chr(10)) as text from audit_events event',
        [],
      );
      expect(row?.text).not.to.include('canary');
      for (const { text } of [expired, worker, server.admin])
        expect(row?.text).not.to.include(text.slice(17, 40));
    });

    it('name the principal that a role does not permit, over REST, Connect and gRPC', async () => {
      const retry = `${jobsPath}/${nowhere}/retry`;
      expect((await post(retry, {}, { ...worker.headers, traceparent })).status).to.equal(403);
      expect((await post('/leasehold.v1.KeysService/ListKeys', {})).status).to.equal(403);
      const client = connectLeasehold(server.grpc, { apiKey: worker.text });
      await failure(client.stats.setCapacity({ total: 1 }));
      client.close();
      const found = await denied('access.denied', 3);
      expect(found.map(({ method }) => method)).to.deep.equal([
        'POST /api/scheduler/jobs/{job_id}/retry',
        'leasehold.v1.KeysService/ListKeys',
        'leasehold.v1.StatsService/SetCapacity',
      ]);
      for (const { principal } of found)
        expect(principal).to.deep.equal({ kind: 'key', id: worker.keyId, name: 'gpu' });
      expect(found[0]).to.include({ trace_id: traceId });
      expect(found[0].detail).to.include('jobs.retry');
    });

    it('name the principal whose scopes do not reach a call, a part of it, or a frame', async () => {
      const job = { addon_id: 'other', job_type: 't', cost_units: 1 };
      expect((await post(`${jobsPath}/submit`, job)).status).to.equal(403);
      const client = connectLeasehold(server.grpc, { apiKey: worker.text });
      const one = (addonId: string, stream?: string) => ({
        addonId,
        jobType: 't',
        costUnits: 1,
        ...(stream ? { stream } : {}),
      });
      const { outcomes } = await client.jobs.submitJobs({ jobs: [one('shop'), one('shop', 'films')] });
      expect(outcomes).to.have.length(2);
      const watch = client.stats.watchSnapshots({})[Symbol.asyncIterator]();
      await failure(watch.next());
      const released = work(client, {
        workerId: 'cpu-2',
        releases: [{ leaseId: nowhere, status: FinalStatus.SUCCEEDED }],
      });
      for await (const { releases } of released) if (releases.length > 0) break;
      const credits = {
        workerId: 'gpu-1',
        credits: [{ jobs: 1, acceptJobTypes: ['t'], streams: ['elsewhere'] }],
      };
      await failure(work(client, credits)[Symbol.asyncIterator]().next());
      client.close();
      const found = await denied('access.denied', 5);
      expect(
        found.map(({ method, detail }) => [method.replace(/.*\//, ''), detail.split(':')[0]]),
      ).to.deep.equal([
        ['submit', 'addon_id'],
        ['SubmitJobs', 'stream'],
        ['WatchSnapshots', 'figures need scopes that reach all streams, job_types'],
        ['StreamWork', 'worker_id'],
        ['StreamWork', 'streams'],
      ]);
    });

    it('are sampled, and count those left out; the caller waits for none of it', async () => {
      await server.database.query('alter table audit_events rename to lost', []);
      for (let i = 0; i < 50; i++) {
        const { status } = await fetch(`${server.http}/api/scheduler/jobs`);
        expect(status).to.equal(401);
      }
      await server.database.query('alter table lost rename to audit_events', []);
      const total = await eventually('all are counted', async () => {
        const found = (await events('outcome=denied')).filter(({ detail }) => detail === 'missing');
        const sum = found.reduce((count, { left_out }) => count + 1 + left_out, 0);
        return sum >= 50 ? { sum, rows: found.length } : undefined;
      });
      expect(total.sum).to.equal(50);
      expect(total.rows).to.be.below(20);
      server.complaints.splice(0);
    });

    it('do not hide the first use of a key from an address, which is recorded once', async () => {
      const client = connectLeasehold(server.grpc, { apiKey: worker.text });
      await client.keys.whoAmI({});
      client.close();
      expect((await fetch(`${server.http}/api/access/whoami`, { headers: worker.headers })).ok).to.equal(
        true,
      );
      const found = await eventually('it is written', async () => {
        const all = await events(`action=keys.new_address&principal_id=${worker.keyId}`);
        return all.length > 0 ? all : undefined;
      });
      expect(found).to.have.length(1);
      expect(found[0]).to.deep.include({
        principal: { kind: 'key', id: worker.keyId, name: 'gpu' },
        peer: '127.0.0.1',
        outcome: 'done',
        method: null,
      });
    });
  });

  describe('an insecure start in the audit', () => {
    it('has the addresses and what the server does without', async () => {
      await using server = await startTestServer(engine, {
        settings: { insecure: ['no-auth', 'no-tls'], httpAddr: { host: '0.0.0.0', port: 0 } },
      });
      const http = server.http.replace('0.0.0.0', '127.0.0.1');
      const [event, ...more] = (await get({ ...server, http }, '/api/access/audit')).body.events;
      expect(more).to.deep.equal([]);
      expect(event).to.deep.include({
        action: 'server.start_insecure',
        principal: { kind: 'system', id: 'server', name: 'server' },
        target: '0.0.0.0:0,127.0.0.1:0',
        detail: 'insecure=no-auth,no-tls auth=none tls=off',
      });
    });

    it('is not recorded of a usual start', async () => {
      await using server = await startTestServer(engine);
      expect((await get(server, '/api/access/audit')).body.events).to.deep.equal([]);
    });
  });
});

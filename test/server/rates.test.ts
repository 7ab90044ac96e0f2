/**
 * Rates of credentials, by every way in. The rates are so low, and the first call so large, that no pause of
 * the machine changes a verdict.
 */
import { Code, ConnectError } from '@connectrpc/connect';
import { expect } from 'chai';
import { QuotaFailureSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.js';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import type { Config } from '../../src/config.ts';
import { onEveryEngine } from '../support/engines.ts';
import { type KeyedServer, startKeyedServer } from '../support/keys.ts';

const job = { addon_id: 'shop', job_type: 'render', cost_units: 1 };

const batch = (count: number) => ({
  jobs: Array.from({ length: count }, () => ({ addonId: 'shop', jobType: 'render', costUnits: 1 })),
});

const failureOf = async (call: Promise<unknown>): Promise<ConnectError> => {
  const failure = await call.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error),
  );
  if (!failure) throw new Error('the call was not refused');
  return failure;
};

describe('rates', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    const start = async (settings: Partial<Config>) => {
      server = await startKeyedServer(engine, { settings });
    };
    afterEach(() => server.stop());

    const ask = async (
      method: string,
      path: string,
      body?: object,
      headers: object = server.admin.headers,
    ) => {
      const response = await fetch(`${server.http}${path}`, {
        method,
        headers: { ...headers, ...(body ? { 'content-type': 'application/json' } : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      const text = await response.text();
      const answer = JSON.parse(text) as Record<string, unknown> & { code?: string };
      return { status: response.status, retryAfter: Number(response.headers.get('retry-after')), answer };
    };

    it('count the jobs of a batch, and refuse with the time to wait, in the shape of each API', async () => {
      await start({ rateSubmit: 1, rateBurstS: 1 });
      const client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
      await client.jobs.submitJobs(batch(500));
      const overRest = await ask('POST', '/api/scheduler/jobs/submit', job);
      expect([overRest.status, overRest.answer.code]).to.deep.equal([429, 'rate_limited']);
      expect(overRest.retryAfter).to.be.within(400, 500);
      const overGrpc = await failureOf(client.jobs.submitJob({ ...batch(1).jobs[0] }));
      expect(overGrpc.code).to.equal(Code.ResourceExhausted);
      const [retry] = overGrpc.findDetails(RetryInfoSchema);
      expect(Number(retry?.retryDelay?.seconds)).to.be.within(400, 500);
      const overConnect = await ask('POST', '/leasehold.v1.JobsService/SubmitJob', {
        addonId: 'shop',
        jobType: 'render',
        costUnits: 1,
      });
      expect([overConnect.status, overConnect.answer.code]).to.deep.equal([429, 'resource_exhausted']);
      expect(JSON.stringify(overConnect.answer.details)).to.include('google.rpc.RetryInfo');
      const { status: found } = await ask('GET', '/api/scheduler/jobs?limit=1');
      expect(found, 'reads have a bucket of their own').to.equal(200);
    });

    it('admit the call again after the time that the refusal tells', async () => {
      await start({ rateSubmit: 1_000, rateBurstS: 1 });
      const client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
      await client.jobs.submitJobs(batch(5_000));
      const refused = await ask('POST', '/api/scheduler/jobs/submit', job);
      expect(refused.status).to.equal(429);
      await new Promise((resolve) => setTimeout(resolve, refused.retryAfter * 1_000));
      expect((await ask('POST', '/api/scheduler/jobs/submit', job)).status).to.equal(201);
    });

    it('never refuse heartbeats, releases and reports of a worker', async () => {
      await start({ rateRead: 1, rateBurstS: 1 });
      const client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
      await client.jobs.submitJobs(batch(200));
      const worker_id = 'w';
      const { answer: claimed } = await ask('POST', '/api/scheduler/jobs/claim', { worker_id, limit: 200 });
      const [{ job_id }] = claimed.jobs as [{ job_id: string }];
      const read = await ask('GET', `/api/scheduler/jobs/${job_id}`);
      expect([read.status, read.answer.code]).to.deep.equal([429, 'rate_limited']);
      const work = await ask('POST', '/internal/worker/claim', { worker_id, streams: ['s'] });
      expect(work.status).to.equal(429);
      expect(work.answer).to.include({ claimed: false, code: 'rate_limited' });
      const report = { state: 'PREPARING', worker_id };
      for (let i = 0; i < 5; i++)
        expect((await ask('POST', `/api/scheduler/jobs/${job_id}/status`, report)).status).to.equal(200);
      const others: [string, object][] = [
        ['/internal/worker/heartbeat', { job_id, worker_id, lease_token: job_id }],
        ['/internal/worker/complete', { job_id, worker_id, attempt_id: job_id, lease_token: job_id }],
        [`/api/scheduler/lease/${job_id}/heartbeat`, { worker_id }],
        [`/api/scheduler/lease/${job_id}/release`, { worker_id, status: 'SUCCEEDED' }],
        ['/api/files/heartbeat', { owner_id: 'w' }],
        ['/api/files/release', { owner_id: 'w', repository: 'app', reason: 'ENDED' }],
      ];
      for (const [path, body] of others) {
        const { answer } = await ask('POST', path, body);
        expect(answer.code, path).to.match(/^(lease|owner|token)_/);
      }
    });

    it('refuse an address that calls too often without a valid credential, and no valid one', async () => {
      await start({ rateAnonymous: 1, rateBurstS: 60 });
      const codes = new Map<number, number>();
      for (let i = 0; i < 200; i++) {
        const { status: found } = await ask('GET', '/api/access/whoami', undefined, {
          authorization: 'Bearer wrong',
        });
        codes.set(found, (codes.get(found) ?? 0) + 1);
      }
      expect([...codes.keys()].sort()).to.deep.equal([401, 429]);
      expect(codes.get(401)).to.be.at.least(60);
      const wrong = connectLeasehold(server.grpc, { apiKey: `${server.admin.text.slice(0, -1)}!` });
      const failure = await failureOf(wrong.jobs.listJobs({}));
      expect(failure.code).to.equal(Code.ResourceExhausted);
      expect((await ask('GET', '/api/access/whoami')).status).to.equal(200);
    });

    it('limit the open streams of a credential, over all APIs', async () => {
      await start({ maxStreamsPerKey: 1 });
      const client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
      const gone = new AbortController();
      const first = client.stats.watchSnapshots({}, { signal: gone.signal })[Symbol.asyncIterator]();
      await first.next();
      async function* frames() {
        yield { heartbeats: [] };
      }
      const verdicts = async () => {
        for await (const _ of client.leases.streamHeartbeats(frames()));
      };
      const refused = await failureOf(verdicts());
      expect(refused.code).to.equal(Code.ResourceExhausted);
      expect(refused.rawMessage).to.match(/^quota_exceeded: max_streams: 1 of 1/);
      const [failure] = refused.findDetails(QuotaFailureSchema);
      expect(failure?.violations[0]?.subject).to.equal(`credential:${server.admin.keyId}`);
      const body = Buffer.from([0, 0, 0, 0, 2, 0x7b, 0x7d]);
      const overConnect = await fetch(`${server.http}/leasehold.v1.StatsService/WatchSnapshots`, {
        method: 'POST',
        headers: { 'content-type': 'application/connect+json', ...server.admin.headers },
        body,
      });
      expect(await overConnect.text()).to.include('quota_exceeded');
      gone.abort();
      await first.next().catch(() => {});
      for (;;) {
        const outcome = await verdicts().then(
          () => 'served',
          (error: unknown) => ConnectError.from(error).rawMessage,
        );
        if (outcome === 'served') break;
        expect(outcome).to.include('quota_exceeded');
      }
    });
  });
});

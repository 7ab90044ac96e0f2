/** Quotas of tenants, and limits of single keys, by every way in. */
import { Code, ConnectError } from '@connectrpc/connect';
import { expect } from 'chai';
import { QuotaFailureSchema } from '../../gen/google/rpc/error_details_pb.js';
import { connectLeasehold, type LeaseholdClient } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

const path = '/api/access/quotas';

describe('quotas', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let client: LeaseholdClient;
    before(async () => {
      server = await startKeyedServer(engine);
      client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
    });
    after(() => server.stop());

    const ask = async (method: string, to: string, body?: object, key: TestKey = server.admin) => {
      const response = await fetch(`${server.http}${to}`, {
        method,
        headers: { ...key.headers, ...(body ? { 'content-type': 'application/json' } : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      const answer = (await response.json()) as Record<string, unknown> & { code?: string };
      return { status: response.status, answer };
    };

    const job = (addon_id: string, more: object = {}) => ({
      addon_id,
      job_type: 'x',
      cost_units: 1,
      ...more,
    });
    const submit = (addon_id: string, more: object = {}) =>
      ask('POST', '/api/scheduler/jobs/submit', job(addon_id, more));

    /** Sets a quota, and waits until the server refuses with it or accepts again. */
    const setQuota = async (addon_id: string, limits: object) => {
      const { status, answer } = await ask('PUT', path, { addon_id, ...limits });
      expect(status, JSON.stringify(answer)).to.equal(200);
      return answer.quota as Record<string, unknown> | null;
    };

    it('of waiting jobs refuse the jobs beyond them, and accept a repeated submission', async () => {
      await submit('shop', { client_request_id: 'first' });
      await submit('shop');
      const quota = await setQuota('shop', { max_queued: 3 });
      expect(quota).to.include({ addon_id: 'shop', max_queued: 3, max_units: null, queued_jobs: 2 });
      const refused = await eventually('the quota is in force', async () => {
        const found = await submit('shop');
        return found.status === 201 ? undefined : found;
      });
      expect(refused.status).to.equal(429);
      expect(refused.answer.code).to.equal('quota_exceeded');
      expect(refused.answer.detail).to.match(/^max_queued: \d+ of 3 jobs of "shop" wait$/);
      const repeated = await submit('shop', { client_request_id: 'first' });
      expect(repeated.answer.code).to.equal('duplicate_request');
      expect((await submit('other')).status).to.equal(201);
      const overGrpc = await client.jobs.submitJob({ addonId: 'shop', jobType: 'x', costUnits: 1 }).then(
        () => undefined,
        (error: unknown) => ConnectError.from(error),
      );
      expect(overGrpc?.code).to.equal(Code.ResourceExhausted);
      const [failure] = overGrpc?.findDetails(QuotaFailureSchema) ?? [];
      expect(failure?.violations[0]?.subject).to.equal('addon_id:shop');
      const claimed = await ask('POST', '/api/scheduler/jobs/claim', {
        worker_id: 'w',
        addon_id: 'shop',
        limit: 50,
      });
      expect((claimed.answer.jobs as object[]).length).to.be.at.least(3);
      const mixed = await client.jobs.submitJobs({
        jobs: ['shop', 'shop', 'other', 'shop', 'shop'].map((addonId) => ({
          addonId,
          jobType: 'x',
          costUnits: 1,
        })),
      });
      const outcomes = mixed.outcomes.map(({ outcome }) => outcome.case);
      expect(outcomes).to.deep.equal(['submitted', 'submitted', 'submitted', 'submitted', 'error']);
    });

    it('of payloads refuse larger jobs of the tenant alone', async () => {
      await setQuota('small', { max_payload_bytes: 100 });
      const payload = { text: 'x'.repeat(100) };
      const refused = await eventually('the quota is in force', async () => {
        const found = await submit('small', { payload });
        return found.status === 201 ? undefined : found;
      });
      expect([refused.status, refused.answer.code]).to.deep.equal([429, 'quota_exceeded']);
      expect(refused.answer.detail).to.equal(
        'max_payload_bytes: the payload has 111 bytes, and 100 is the most of "small"',
      );
      expect((await submit('small', { payload: { text: 'x' } })).status).to.equal(201);
      expect((await submit('other', { payload })).status).to.equal(201);
    });

    it('are listed with their use, removed without limits, and named in the audit', async () => {
      await setQuota('gone', { max_units: 5, max_queued: 1 });
      expect(await setQuota('gone', {})).to.equal(null);
      await client.quotas.setQuota({ addonId: 'kept', maxUnits: 7n });
      const { quotas } = await client.quotas.listQuotas({});
      const names = quotas.map(({ addonId }) => addonId);
      expect(names).to.include('kept').and.not.include('gone');
      expect(names).to.deep.equal(names.toSorted());
      const kept = quotas.find(({ addonId }) => addonId === 'kept');
      expect(kept).to.include({ maxUnits: 7n, usedUnits: 0n, updatedBy: 'first' });
      expect(kept?.maxQueued).to.equal(undefined);
      const { answer } = await ask('GET', '/api/access/audit?limit=3');
      const events = answer.events as { action: string; target: string; detail: string | null }[];
      expect(events.map(({ action, target, detail }) => [action, target, detail])).to.deep.equal([
        ['quotas.set', 'kept', 'max_units=7'],
        ['quotas.unset', 'gone', null],
        ['quotas.set', 'gone', 'max_units=5 max_queued=1'],
      ]);
    });

    it('are set by administrators of everything alone', async () => {
      const admin = await createKey(server.database, {
        name: 'tenant-admin',
        roles: ['admin'],
        scopes: { addon_ids: ['shop'], job_types: ['*'], streams: ['*'], repositories: ['*'] },
      });
      const observer = await createKey(server.database, { name: 'observer', roles: ['observer'] });
      await eventually('the server knows the keys', async () => {
        const { status } = await ask('GET', '/api/access/whoami', undefined, observer);
        return status === 200 || undefined;
      });
      const set = { addon_id: 'shop', max_units: 1_000 };
      expect((await ask('PUT', path, set, admin)).answer.code).to.equal('permission_denied');
      expect((await ask('PUT', path, set, observer)).answer.code).to.equal('permission_denied');
      expect((await ask('GET', path, undefined, observer)).status).to.equal(200);
    });

    it('of a key itself take the place of the settings of the server', async () => {
      const { answer } = await ask('POST', '/api/access/keys', {
        name: 'slow',
        roles: ['submitter'],
        scopes: { addon_ids: ['*'], job_types: ['*'] },
        limits: { submit_per_s: 1, burst_s: 1 },
      });
      const { key, text } = answer as unknown as { key: { limits: object }; text: string };
      expect(key.limits).to.deep.equal({
        submit_per_s: 1,
        read_per_s: null,
        burst_s: 1,
        max_streams: null,
      });
      const slow = connectLeasehold(server.grpc, { apiKey: text });
      await eventually('the server knows the key', () => slow.keys.whoAmI({}).catch(() => undefined));
      const jobs = Array.from({ length: 100 }, () => ({ addonId: 'other', jobType: 'x', costUnits: 1 }));
      await slow.jobs.submitJobs({ jobs });
      const refused = await slow.jobs.submitJobs({ jobs }).then(
        () => 'submitted',
        (error: unknown) => ConnectError.from(error).rawMessage,
      );
      expect(refused).to.include('rate_limited');
      await client.jobs.submitJobs({ jobs });
    });
  });
});

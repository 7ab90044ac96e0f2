/**
 * A claim, a lease and an owner of files belong to the key that took them. Another key that may use the same
 * names is answered as if they did not exist, unless it has the token of the lease.
 */
import { expect } from 'chai';
import { connectLeasehold, FinalStatus, type LeaseholdClient } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

interface Side {
  key: TestKey;
  client: LeaseholdClient;
}

interface Granted {
  leaseId: string;
  leaseToken: string;
  jobId: string;
}

/** The code in a failed call's message. */
const codeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'ok',
    (error: Error) => /(\w+): /.exec(error.message.replace(/^\[\w+\] /, ''))?.[1] ?? error.message,
  );

describe('holders', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let own: Side;
    let other: Side;

    const side = async (name: string): Promise<Side> => {
      const key = await createKey(server.database, {
        name,
        roles: ['submitter', 'worker'],
        scopes: { addon_ids: ['shop'], streams: ['*'], job_types: ['*'], repositories: ['*'] },
        workerIds: ['w-*'],
      });
      return { key, client: connectLeasehold(server.grpc, { apiKey: key.text }) };
    };

    const isKnown = (headers: Record<string, string>) =>
      eventually('the server knows the key', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers });
        return status === 200 || undefined;
      });

    before(async () => {
      server = await startKeyedServer(engine);
      own = await side('own');
      other = await side('other');
      await isKnown(other.key.headers);
    });
    after(() => server.stop());

    const post = async ({ key }: Pick<Side, 'key'>, path: string, body: object): Promise<string> => {
      const response = await fetch(`${server.http}${path}`, {
        method: 'POST',
        headers: { ...key.headers, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      const answer = (await response.json()) as { code?: string };
      return response.ok ? 'ok' : (answer.code ?? '');
    };

    const submit = async (more: object = {}): Promise<string> => {
      const { job } = await own.client.jobs.submitJob({
        addonId: 'shop',
        jobType: 'render',
        costUnits: 1,
        ...more,
      });
      return job?.jobId ?? '';
    };

    const granted = async ({ client }: Side, requestId = ''): Promise<Granted> => {
      await submit();
      const { outcome } = await client.leases.acquireLease({
        workerId: 'w-1',
        ...(requestId ? { requestId } : {}),
      });
      if (outcome.case !== 'granted') throw new Error('no lease was granted');
      const { leaseId = '', leaseToken = '', jobId = '' } = outcome.value.lease ?? {};
      return { leaseId, leaseToken, jobId };
    };

    it('refuse heartbeats and releases of another key under the same name, by every way', async () => {
      const { leaseId, jobId } = await granted(own);
      const beat = { worker_id: 'w-1' };
      const wrongToken = { ...beat, job_id: jobId, attempt_id: leaseId, lease_token: leaseId };
      const end = { ...beat, status: 'SUCCEEDED' };
      const calls: [string, object][] = [
        [`/api/scheduler/lease/${leaseId}/heartbeat`, beat],
        [`/api/scheduler/lease/${leaseId}/release`, end],
        [`/api/system/scheduler/leases/${leaseId}/heartbeat`, beat],
        [`/api/system/scheduler/leases/${leaseId}/complete`, beat],
        [`/api/system/scheduler/leases/${leaseId}/fail`, { ...beat, error: { message: 'x' } }],
        ['/internal/worker/heartbeat', wrongToken],
        ['/internal/worker/complete', wrongToken],
        ['/internal/worker/fail', { ...wrongToken, error: { code: 'x', message: 'x' } }],
      ];
      for (const [path, body] of calls)
        expect(await post(other, path, body), path).to.equal('lease_not_found');
      const { leases } = other.client;
      const worker = { leaseId, workerId: 'w-1' };
      expect(await codeOf(leases.heartbeat(worker))).to.equal('lease_not_found');
      const release = { ...worker, status: FinalStatus.SUCCEEDED };
      expect(await codeOf(leases.releaseLease(release))).to.equal('lease_not_found');
      expect(await codeOf(own.client.leases.releaseLease(release))).to.equal('ok');
      expect(await codeOf(leases.heartbeat(worker)), 'after its end').to.equal('lease_not_found');
      expect(await codeOf(own.client.leases.heartbeat(worker))).to.equal('lease_not_active');
    });

    it('refuse them in the frames of both streams', async () => {
      const { leaseId } = await granted(own);
      const codes: string[] = [];
      async function* heartbeats() {
        yield { heartbeats: [{ leaseId, workerId: 'w-1' }], owners: [] };
      }
      for await (const { verdicts } of other.client.leases.streamHeartbeats(heartbeats()))
        for (const { outcome } of verdicts) codes.push(outcome.case === 'lost' ? outcome.value.code : 'kept');
      async function* work() {
        yield {
          workerId: 'w-1',
          heartbeats: [{ leaseId }],
          releases: [{ leaseId, status: FinalStatus.SUCCEEDED }],
        };
      }
      for await (const { verdicts, releases } of other.client.leases.streamWork(work())) {
        for (const { outcome } of verdicts) codes.push(outcome.case === 'lost' ? outcome.value.code : 'kept');
        for (const { outcome } of releases)
          codes.push(outcome.case === 'refused' ? outcome.value.code : 'ended');
      }
      expect(codes).to.deep.equal(['lease_not_found', 'lease_not_found', 'lease_not_found']);
      expect(await codeOf(own.client.leases.heartbeat({ leaseId, workerId: 'w-1' }))).to.equal('ok');
    });

    it('accept another key that has the token, over single calls and streams', async () => {
      const { leaseId, leaseToken } = await granted(own);
      const { leases } = other.client;
      const worker = { leaseId, workerId: 'w-1', leaseToken };
      expect(await codeOf(leases.heartbeat(worker))).to.equal('ok');
      async function* heartbeats() {
        yield { heartbeats: [worker] };
      }
      const kept: boolean[] = [];
      for await (const { verdicts } of leases.streamHeartbeats(heartbeats()))
        for (const { outcome } of verdicts) kept.push(outcome.case === 'extended');
      expect(kept).to.deep.equal([true]);
      expect(await codeOf(leases.releaseLease({ ...worker, status: FinalStatus.SUCCEEDED }))).to.equal('ok');
    });

    it('keep a claim, its status and its lease from another key', async () => {
      const jobId = await submit({ jobType: 'claimed' });
      const claim = { workerId: 'w-1', acceptJobTypes: ['claimed'], requestId: 'claim-1' };
      const { jobs } = await own.client.jobs.claimJobs(claim);
      expect(jobs.map((job) => job.jobId)).to.deep.equal([jobId]);
      const again = await other.client.jobs.claimJobs(claim);
      expect(again.jobs).to.deep.equal([]);
      const status = { state: 'PREPARING', worker_id: 'w-1' };
      expect(await post(other, `/api/scheduler/jobs/${jobId}/status`, status)).to.equal('worker_mismatch');
      const request = { job_id: jobId, worker_id: 'w-1', request_id: 'lease-1' };
      expect(await post(other, '/api/scheduler/lease/request', request)).to.equal('worker_mismatch');
      expect(await post(own, `/api/scheduler/jobs/${jobId}/status`, status)).to.equal('ok');
      expect(await post(own, '/api/scheduler/lease/request', request)).to.equal('ok');
      expect(await post(own, '/api/scheduler/lease/request', request), 'again').to.equal('ok');
      expect(await post(other, '/api/scheduler/lease/request', request)).to.equal('job_not_claimed');
      expect(await post(other, `/api/scheduler/jobs/${jobId}/status`, { state: 'RUNNING' })).to.equal(
        'permission_denied',
      );
    });

    it('repeat a grant only to the key that got it', async () => {
      const first = await granted(own, 'same-request');
      const [mine, theirs] = await Promise.all([own, other].map((one) => granted(one, 'same-request')));
      expect(mine?.leaseId).to.equal(first.leaseId);
      expect(theirs?.leaseId).to.not.equal(first.leaseId);
      expect((await granted(other, 'same-request')).leaseId).to.equal(theirs?.leaseId);
    });

    it('keep the leases of a key through its rotation', async () => {
      const { leaseId } = await granted(own);
      const rotated = await fetch(`${server.http}/api/access/keys/${own.key.keyId}/rotate`, {
        method: 'POST',
        headers: { ...server.admin.headers, 'content-type': 'application/json' },
        body: '{}',
      });
      const { text: secret } = (await rotated.json()) as { text: string };
      const next = connectLeasehold(server.grpc, { apiKey: secret });
      await isKnown({ authorization: `Bearer ${secret}` });
      expect(await codeOf(next.leases.heartbeat({ leaseId, workerId: 'w-1' }))).to.equal('ok');
    });

    it('keep an owner of files from another key, until its life has ended', async () => {
      const files = { owner_id: 'w-1', repository: 'r/app', paths: ['a'] };
      expect(await post(own, '/api/files/acquire', files)).to.equal('ok');
      const asOwner = { owner_id: 'w-1' };
      const calls: [string, object][] = [
        ['/api/files/heartbeat', asOwner],
        ['/api/files/release', { ...asOwner, repository: 'r/app', reason: 'COMMITTED' }],
        ['/api/files/owners/w-1/activity', {}],
        ['/api/files/owners/w-1/stop', {}],
        ['/api/files/owners/w-1/end', {}],
      ];
      for (const [path, body] of calls)
        expect(await post(other, path, body), path).to.equal('owner_not_found');
      expect(await post(other, '/api/files/acquire', files)).to.equal('permission_denied');
      const asCaller = { ...files, owner_id: 'w-2', caller_id: 'w-1', paths: ['b'] };
      expect(await post(other, '/api/files/acquire', asCaller)).to.equal('permission_denied');
      const { outcome } = await other.client.files.acquireFileLeases({
        ownerId: 'w-3',
        repository: 'r/app',
        paths: ['a'],
        owner: { parentOwnerId: 'w-1' },
      });
      expect(outcome.case, 'borrows nothing').to.equal('contended');
      async function* heartbeats() {
        yield { owners: [{ ownerId: 'w-1' }] };
      }
      const codes: string[] = [];
      for (const { client } of [other, own])
        for await (const { owners } of client.leases.streamHeartbeats(heartbeats()))
          for (const { outcome } of owners) codes.push(outcome.case === 'lost' ? outcome.value.code : 'kept');
      expect(codes).to.deep.equal(['owner_not_found', 'kept']);
      expect(await post(own, '/api/files/owners/w-1/end', {})).to.equal('ok');
      expect(await post(other, '/api/files/acquire', files), 'a new life').to.equal('ok');
      expect(await post(own, '/api/files/heartbeat', asOwner)).to.equal('owner_not_found');
    });
  });
});

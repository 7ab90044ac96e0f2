import { expect } from 'chai';
import type { JobEvent } from '../../../src/domain/jobs/job.ts';
import type { Grant, Verdict } from '../../../src/domain/leases/lease.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { failure } from '../../support/failure.ts';
import { caller, engineOn, engineSettings, letTimePass, submitted } from '../../support/jobs.ts';
import {
  acquire,
  acquired,
  beatFor,
  claimedAndLeased,
  codeOf,
  everything,
  expectDenied,
  freshForEach,
  releaseFor,
  sameEachTime,
} from '../../support/lease-helpers.ts';

describe('leases', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    const eventsOf = async (jobId: string) => (await stage.engine.jobs.events(jobId, {}, caller)).items;
    const walk = (events: readonly JobEvent[]) =>
      events.map(({ type, data }) => `${type} ${data.from} ${data.to}`);
    const capacity = () => stage.engine.capacity.get(caller);
    const read = (jobId: string) => stage.engine.jobs.get(jobId, caller);
    const told = (verdicts: readonly Verdict[]) =>
      verdicts.map((verdict) => (verdict.kind === 'lost' ? verdict.code : verdict.kind));

    it('runs a lease from grant over heartbeat to release, and records every step', async () => {
      const [job] = await submitted(stage.engine, { cost_units: 60 });
      const grant = await acquired(stage.engine, 'w');
      expect(grant.job).to.include({ jobId: job?.jobId, state: 'LEASED', attempts: 1, claimedBy: 'w' });
      expect(grant.lease).to.include({ state: 'ACTIVE', attempt: 1, costUnits: 60, ttlS: 60 });
      expect(grant.lease.expiresAtMs - grant.lease.grantedAtMs).to.equal(60_000);
      expect(await capacity()).to.include({ used: 60, available: 40, reserved: 0 });
      const kept = await stage.engine.leases.heartbeat(
        beatFor(grant, { progress: 0.5, message: 'half' }),
        caller,
      );
      expect(kept.expiresAtMs).to.be.at.least(grant.lease.expiresAtMs);
      expect((await read(grant.job.jobId)).job).to.include({ state: 'RUNNING', progress: 0.5, note: 'half' });
      const done = await stage.engine.leases.release(releaseFor(grant, { resultData: { a: 1 } }), caller);
      expect(done.lease).to.include({ state: 'RELEASED', releaseStatus: 'SUCCEEDED' });
      expect(done.job.state).to.equal('DONE');
      expect(done.result).to.deep.include({ status: 'SUCCEEDED', resultData: { a: 1 }, attempts: 1 });
      expect(await capacity()).to.include({ used: 0, available: 100 });
      expect(walk(await eventsOf(grant.job.jobId))).to.deep.equal([
        'JOB_SUBMITTED null QUEUED',
        'LEASE_GRANTED QUEUED LEASED',
        'JOB_RUNNING LEASED RUNNING',
        'LEASE_RELEASED RUNNING RUNNING',
        'JOB_DONE RUNNING DONE',
      ]);
    });

    it('grants a lease on a claimed job with the requested TTL', async () => {
      await submitted(stage.engine, {});
      const { lease, job } = await claimedAndLeased(stage.engine, 'w', { ttl_sec: 5 });
      expect(job.state).to.equal('RUNNING');
      expect(lease).to.include({ ttlS: 5, workerId: 'w' });
      await letTimePass(stage.store.database, 4_000);
      const kept = await stage.engine.leases.heartbeat(beatFor({ lease }), caller);
      expect(kept.ttlRemainingMs).to.equal(5_000);
      await letTimePass(stage.store.database, 4_000);
      expect(await stage.engine.services.reaper.runOnce()).to.equal(0);
      await letTimePass(stage.store.database, 1_001);
      expect(await stage.engine.services.reaper.runOnce()).to.equal(1);
      expect(walk(await eventsOf(job.jobId)).slice(2)).to.deep.equal([
        'JOB_LEASE_PENDING CLAIMED LEASE_PENDING',
        'LEASE_GRANTED LEASE_PENDING RUNNING',
        'LEASE_EXPIRED RUNNING RUNNING',
        'JOB_TIMEOUT RUNNING TIMEOUT',
      ]);
    });

    it('releasing a LEASED job records JOB_RUNNING and LEASE_RELEASED', async () => {
      await submitted(stage.engine, {});
      const grant = await acquired(stage.engine);
      await stage.engine.leases.release(releaseFor(grant, { status: 'FAILED', error: 'no' }), caller);
      expect(walk(await eventsOf(grant.job.jobId)).slice(2)).to.deep.equal([
        'JOB_RUNNING LEASED RUNNING',
        'LEASE_RELEASED RUNNING RUNNING',
        'JOB_FAILED RUNNING FAILED',
      ]);
    });

    it('grants and extends a lease for the TTL plus the grace', async () => {
      const patient = engineOn(stage.store.database, {
        ...engineSettings,
        leaseTtlS: 10,
        heartbeatGraceS: 7,
      });
      await submitted(patient, {});
      const grant = await acquired(patient);
      expect(grant.lease.expiresAtMs - grant.lease.grantedAtMs).to.equal(17_000);
      const kept = await patient.leases.heartbeat(beatFor(grant), caller);
      expect(kept.ttlRemainingMs).to.equal(17_000);
      await patient.stop();
    });

    it("never extends a lease beyond the job's max_runtime_s", async () => {
      await submitted(stage.engine, { max_runtime_s: 90 });
      const grant = await acquired(stage.engine);
      await letTimePass(stage.store.database, 50_000);
      expect((await stage.engine.leases.heartbeat(beatFor(grant), caller)).ttlRemainingMs).to.be.within(
        39_000,
        40_000,
      );
      await letTimePass(stage.store.database, 40_001);
      expect(await codeOf(stage.engine.leases.heartbeat(beatFor(grant), caller))).to.equal(
        'lease_not_active',
      );
      expect(await stage.engine.services.reaper.runOnce()).to.equal(1);
      expect((await read(grant.job.jobId)).job.state).to.equal('TIMEOUT');
    });

    it('expiry frees capacity and requeues the job until max_attempts', async () => {
      const [job] = await submitted(stage.engine, { cost_units: 7, max_attempts: 2, retry_backoff_s: 100 });
      const first = await acquired(stage.engine, 'one');
      await letTimePass(stage.store.database, 60_001);
      expect(await stage.engine.services.reaper.runOnce()).to.equal(1);
      expect(await capacity()).to.include({ used: 0 });
      const waiting = (await read(first.job.jobId)).job;
      expect(waiting).to.include({ state: 'QUEUED', claimedBy: null, attempts: 1 });
      const waitMs = (waiting.nextRetryAtMs ?? 0) - waiting.updatedAtMs;
      expect(waitMs).to.be.within(75_000, 100_000);
      expect(expectDenied(await acquire(stage.engine, 'two')).reason).to.equal('No jobs available');
      await letTimePass(stage.store.database, waitMs + 1);
      await stage.engine.services.reaper.runOnce();
      const second = await acquired(stage.engine, 'two');
      expect(second.lease).to.include({ attempt: 2, jobId: job?.jobId });
      expect(BigInt(second.lease.fence) > BigInt(first.lease.fence)).to.equal(true);
      await letTimePass(stage.store.database, 60_001);
      await stage.engine.services.reaper.runOnce();
      const { job: ended, result } = await read(first.job.jobId);
      expect(ended).to.include({ state: 'TIMEOUT', attempts: 2 });
      expect(result?.error).to.match(/^the lease expired: worker two has sent no heartbeat since /);
      expect(await capacity()).to.include({ used: 0 });
      const leases = (await stage.engine.leases.list({ job_id: first.job.jobId }, caller)).items;
      expect(leases.map(({ state, workerId, attempt }) => [state, workerId, attempt])).to.deep.equal([
        ['EXPIRED', 'two', 2],
        ['EXPIRED', 'one', 1],
      ]);
    });

    it('rejects calls on an expired lease before and after the reaper, and writes nothing', async () => {
      await submitted(stage.engine, { max_attempts: 2, retry_backoff_s: 0 });
      const grant = await acquired(stage.engine);
      await letTimePass(stage.store.database, 60_001);
      for (const when of ['before', 'after']) {
        if (when === 'after') await stage.engine.services.reaper.runOnce();
        const before = await everything(stage.store.database);
        const beat = beatFor(grant, { token: grant.token, progress: 1, message: 'late' });
        expect(told(await stage.engine.leases.heartbeatMany([beat])), when).to.deep.equal([
          'lease_not_active',
        ]);
        const late = await failure(stage.engine.leases.release(releaseFor(grant), caller));
        expect(late).to.include({ code: 'lease_not_active' });
        expect(String(late)).to.match(/expired at \d{4}-/);
        expect(await everything(stage.store.database), when).to.deep.equal(before);
      }
    });

    it("requires the lease's worker, token and job for heartbeats and releases", async () => {
      await submitted(stage.engine, {}, {});
      const [grant, other] = [await acquired(stage.engine, 'a'), await acquired(stage.engine, 'b')];
      const before = await everything(stage.store.database);
      const beats = [
        beatFor(grant, { workerId: 'b' }),
        beatFor(grant, { token: other.token }),
        beatFor(grant, { leaseId: newId() }),
      ];
      expect(told(await stage.engine.leases.heartbeatMany(beats))).to.deep.equal([
        'worker_mismatch',
        'token_mismatch',
        'lease_not_found',
      ]);
      const tries = [
        { workerId: 'b' },
        { token: other.token },
        { token: 'no uuid' },
        { jobId: other.job.jobId },
        { jobId: 'no uuid' },
        { leaseId: newId() },
      ];
      const codes = tries.map((more) => codeOf(stage.engine.leases.release(releaseFor(grant, more), caller)));
      expect(await Promise.all(codes)).to.deep.equal([
        'worker_mismatch',
        'token_mismatch',
        'token_mismatch',
        'job_mismatch',
        'job_mismatch',
        'lease_not_found',
      ]);
      const wrongJob = beatFor(grant, { jobId: other.job.jobId });
      expect(await codeOf(stage.engine.leases.heartbeat(wrongJob, caller))).to.equal('job_mismatch');
      expect(await everything(stage.store.database)).to.deep.equal(before);
    });

    it('releases leases of one or several workers together, with and without a token', async () => {
      for (const workers of [
        ['a', 'a', 'a'],
        ['a', 'b', 'c'],
      ]) {
        await submitted(stage.engine, {}, {}, {});
        const grants: Grant[] = [];
        for (const worker of workers) grants.push(await acquired(stage.engine, worker));
        const [first, second, third] = grants as [Grant, Grant, Grant];
        const releases = [
          releaseFor(first, { token: first.token.toUpperCase(), jobId: first.job.jobId.toUpperCase() }),
          releaseFor(second, { workerId: 'somebody else' }),
          releaseFor(third, { token: null }),
        ];
        const codes = releases.map((release) => codeOf(stage.engine.leases.release(release, caller)));
        expect(await Promise.all(codes)).to.deep.equal(['ok', 'worker_mismatch', 'ok']);
        await stage.engine.leases.release(releaseFor(second), caller);
      }
    });

    it('answers heartbeats of a batch one by one, in their order', async () => {
      await submitted(stage.engine, {}, {}, {});
      const grants = [
        await acquired(stage.engine, 'a'),
        await acquired(stage.engine, 'b'),
        await acquired(stage.engine, 'c'),
      ];
      const [a, b, c] = grants.map((grant) => beatFor(grant));
      if (!a || !b || !c) throw new Error('three were granted');
      const verdicts = await stage.engine.leases.heartbeatMany([c, { ...a, workerId: 'x' }, b, c, a]);
      expect(told(verdicts)).to.deep.equal([
        'extended',
        'worker_mismatch',
        'extended',
        'extended',
        'extended',
      ]);
    });

    it('merges two heartbeats of a lease in one batch, and the later value counts', async () => {
      await submitted(stage.engine, {}, {}, {});
      const [a, b, c] = [
        await acquired(stage.engine),
        await acquired(stage.engine),
        await acquired(stage.engine),
      ];
      await stage.engine.leases.heartbeatMany([
        beatFor(a, { progress: 0.5, message: 'said' }),
        beatFor(a),
        beatFor(b),
        beatFor(b, { progress: 0.5, message: 'said' }),
        beatFor(c, { progress: 0.25, message: 'first' }),
        beatFor(c, { progress: 0.75 }),
      ]);
      const jobs = await Promise.all([a, b, c].map(async ({ job }) => (await read(job.jobId)).job));
      expect(jobs.map(({ progress, note }) => [progress, note])).to.deep.equal([
        [0.5, 'said'],
        [0.5, 'said'],
        [0.75, 'first'],
      ]);
    });

    it('repeats a grant to the same request of the same worker while the lease lasts', async () => {
      await submitted(stage.engine, { max_attempts: 9, retry_backoff_s: 0 }, {}, {});
      const ask = { request_id: 'r' };
      const [first, same] = await Promise.all([
        acquired(stage.engine, 'w', ask),
        acquired(stage.engine, 'w', ask),
      ]);
      expect(same).to.deep.equal(first);
      expect(sameEachTime(await acquired(stage.engine, 'w', ask))).to.deep.equal(sameEachTime(first));
      expect((await acquired(stage.engine, 'x', ask)).lease.leaseId).not.to.equal(first.lease.leaseId);
      await stage.engine.leases.heartbeat(beatFor(first), caller);
      const kept = await acquired(stage.engine, 'w', ask);
      expect([kept.token, kept.lease.fence]).to.deep.equal([first.token, first.lease.fence]);
      expect(kept.job.state).to.equal('RUNNING');
      await stage.engine.leases.release(releaseFor(first), caller);
      expect((await acquired(stage.engine, 'w', ask)).lease.leaseId).not.to.equal(first.lease.leaseId);
    });

    it("repeats a claimed job's grant to the same request, within a batch and later", async () => {
      await submitted(stage.engine, {});
      const [job] = await stage.engine.jobs.claim({ worker_id: 'w' }, caller);
      const ask = () => stage.engine.leases.request({ job_id: job?.jobId ?? '', request_id: 'r' }, caller);
      const [first, same] = await Promise.all([ask(), ask()]);
      expect(first.kind).to.equal('granted');
      expect(same).to.deep.equal(first);
      expect(sameEachTime(await ask())).to.deep.equal(sameEachTime(first));
      expect((await capacity()).used).to.equal(1);
      const other = stage.engine.leases.request({ job_id: job?.jobId ?? '', request_id: 's' }, caller);
      expect(await codeOf(other)).to.equal('job_not_claimed');
    });

    it('repeats the answer to a release only with the token and the same status', async () => {
      await submitted(stage.engine, {});
      const grant = await acquired(stage.engine);
      const first = await stage.engine.leases.release(releaseFor(grant), caller);
      const before = await everything(stage.store.database);
      expect(await stage.engine.leases.release(releaseFor(grant), caller)).to.deep.equal(first);
      const tries = [{ token: null }, { status: 'FAILED' as const }, { workerId: 'x' }];
      const codes = tries.map((more) => codeOf(stage.engine.leases.release(releaseFor(grant, more), caller)));
      expect(await Promise.all(codes)).to.deep.equal([
        'lease_not_active',
        'lease_not_active',
        'worker_mismatch',
      ]);
      expect(await everything(stage.store.database)).to.deep.equal(before);
    });

    it('applies the first valid release of a lease when one batch has several', async () => {
      await submitted(stage.engine, { cost_units: 5 });
      const grant = await acquired(stage.engine);
      const release = (more: object) => codeOf(stage.engine.leases.release(releaseFor(grant, more), caller));
      const codes = await Promise.all([
        release({ workerId: 'x' }),
        release({}),
        release({ status: 'FAILED' }),
      ]);
      expect(codes).to.deep.equal(['worker_mismatch', 'ok', 'lease_not_active']);
      expect((await read(grant.job.jobId)).job.state).to.equal('DONE');
      expect((await capacity()).used).to.equal(0);
    });

    it('requeues a job that failed retryably, until its last attempt', async () => {
      await submitted(stage.engine, { max_attempts: 2, retry_backoff_s: 0 });
      const grant = await acquired(stage.engine);
      const failed = { status: 'FAILED' as const, error: 'no', retryable: true };
      const released = await stage.engine.leases.release(releaseFor(grant, failed), caller);
      expect([released.lease.requeued, released.result]).to.deep.equal([true, null]);
      expect(released.job).to.include({ state: 'QUEUED', nextRetryAtMs: null });
      const last = await acquired(stage.engine);
      const end = await stage.engine.leases.release(releaseFor(last, failed), caller);
      expect(end.lease.requeued).to.equal(false);
      expect(end.job.state).to.equal('FAILED');
      expect((await eventsOf(grant.job.jobId)).find(({ type }) => type === 'JOB_REQUEUED')?.data).to.include({
        reason: 'no',
        attempts: 1,
        retry_in_ms: 0,
      });
    });

    it('reports a requested cancellation and ends the job CANCELED with its result', async () => {
      await submitted(stage.engine, {}, { max_attempts: 5 });
      const [worked, died] = [await acquired(stage.engine, 'a'), await acquired(stage.engine, 'b')];
      for (const { job } of [worked, died])
        await stage.engine.jobs.cancel(job.jobId, { reason: 'enough' }, caller);
      const [verdict] = await stage.engine.leases.heartbeatMany([beatFor(worked)]);
      expect(verdict).to.include({ kind: 'extended', cancelRequested: true });
      const end = await stage.engine.leases.release(releaseFor(worked, { resultData: [1] }), caller);
      expect(end.job.state).to.equal('CANCELED');
      expect(end.result).to.deep.include({ status: 'CANCELED', resultData: [1] });
      await letTimePass(stage.store.database, 60_001);
      await stage.engine.services.reaper.runOnce();
      expect((await read(died.job.jobId)).job.state).to.equal('CANCELED');
    });

    it('counts the attempts of a retried job on, with a new budget', async () => {
      await submitted(stage.engine, { max_attempts: 2, retry_backoff_s: 0 });
      let jobId = '';
      let fence = 0n;
      for (let attempt = 1; attempt <= 4; attempt++) {
        if (attempt === 3) await stage.engine.jobs.retry(jobId, {}, caller);
        const grant = await acquired(stage.engine);
        jobId = grant.job.jobId;
        expect(grant.lease.attempt).to.equal(attempt);
        expect(BigInt(grant.lease.fence) > fence).to.equal(true);
        fence = BigInt(grant.lease.fence);
        await letTimePass(stage.store.database, 60_001);
        await stage.engine.services.reaper.runOnce();
        expect((await read(jobId)).job.state).to.equal(attempt % 2 === 0 ? 'TIMEOUT' : 'QUEUED');
      }
    });

    it('finds active and ended leases by id, and never shows their token', async () => {
      await submitted(stage.engine, {}, {});
      const [active, over] = [await acquired(stage.engine), await acquired(stage.engine)];
      await stage.engine.leases.release(releaseFor(over), caller);
      const found = await Promise.all(
        [active, over].map(({ lease }) => stage.engine.leases.get(lease.leaseId, caller)),
      );
      expect(found.map(({ lease }) => lease.state)).to.deep.equal(['ACTIVE', 'RELEASED']);
      const shown = JSON.stringify([
        found,
        await stage.engine.leases.list({}, caller),
        await eventsOf(active.job.jobId),
        await eventsOf(over.job.jobId),
        await read(over.job.jobId),
      ]);
      for (const { token } of [active, over]) expect(shown).not.to.include(token);
      expect(await codeOf(stage.engine.leases.get(newId(), caller))).to.equal('lease_not_found');
    });

    it('rejects requests on a stopped engine', async () => {
      await submitted(stage.engine, {}, {});
      await stage.engine.stop();
      expect(await codeOf(acquire(stage.engine, 'w'))).to.equal('unavailable');
      expect(await codeOf(acquire(stage.engine, 'w', { accept_job_types: ['t'], wait_ms: 5_000 }))).to.equal(
        'unavailable',
      );
    });
  });
});

/**
 * The guarantee: an unconfirmed grant on a stream is requeued, and a confirmed one is a lease like any other.
 */
import { expect } from 'chai';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  caller,
  engineOn,
  engineSettings,
  letTimePass,
  submitted,
  type TestedEngine,
} from '../../support/jobs.ts';
import { beatFor, codeOf, fetching, releaseFor, wipe } from '../../support/lease-helpers.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { openStage } from '../../support/redis-stage.ts';

const deliveryMs = limits.deliveryS * 1000;

const fetchOne = async (engine: TestedEngine, streams?: string[]): Promise<Grant> => {
  const [grant] = await fetching(engine, 1, streams);
  if (!grant) return expect.fail('nothing was granted');
  return grant;
};

onEveryEngine((kind) => {
  describe('an unconfirmed grant', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());
    beforeEach(async () => {
      await wipe(store.database);
      engine = engineOn(store.database, { ...engineSettings, maxClaims: 3 });
    });
    afterEach(() => engine.stop());

    const jobOf = async ({ job: { jobId } }: Grant) => (await engine.jobs.get(jobId, caller)).job;
    const typesOf = async ({ job: { jobId } }: Grant) =>
      (await engine.jobs.events(jobId, {}, caller)).items.map(({ type }) => type);
    const usedNow = async () => (await engine.capacity.get(caller)).used;
    /** Lets the time for confirmation pass, and expects the reaper to end the grant. */
    const isLost = async () => {
      await letTimePass(store.database, deliveryMs + 1);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
    };

    it('requeues an unconfirmed grant after 10 s without counting an attempt', async () => {
      await submitted(engine, { cost_units: 5 });
      const lost = await fetchOne(engine);
      expect(lost.lease).to.include({ attempt: 1, ttlS: engineSettings.leaseTtlS });
      expect(lost.lease.expiresAtMs - lost.lease.grantedAtMs).to.equal(deliveryMs);
      expect(await usedNow()).to.equal(5);
      await letTimePass(store.database, deliveryMs - 1_000);
      expect(await engine.services.reaper.runOnce()).to.equal(0);
      await isLost();
      expect(await jobOf(lost)).to.include({ state: 'QUEUED', attempts: 0, nextRetryAtMs: null });
      expect(await usedNow()).to.equal(0);
      expect(await typesOf(lost)).to.deep.equal([
        'JOB_SUBMITTED',
        'LEASE_GRANTED',
        'LEASE_EXPIRED',
        'JOB_REQUEUED',
      ]);
      const { items } = await engine.jobs.events(lost.job.jobId, {}, caller);
      expect(items[2]?.data).to.include({ undelivered: true, worker_id: 'w' });
      expect(items[3]?.data).to.include({ attempts: 0, retry_in_ms: 0 });
      // The worker did receive the grant, but its calls are too late.
      expect(await codeOf(engine.leases.heartbeat(beatFor(lost), caller))).to.equal('lease_not_active');
      expect(await codeOf(engine.leases.release(releaseFor(lost), caller))).to.equal('lease_not_active');
      const next = await fetchOne(engine);
      expect(next.lease.attempt).to.equal(1);
      expect(Number(next.lease.fence)).to.be.above(Number(lost.lease.fence));
      await engine.leases.release(releaseFor(next), caller);
      expect(await jobOf(next)).to.include({ state: 'DONE', attempts: 1 });
    });

    it('treats a grant as any other lease from its first heartbeat on', async () => {
      await submitted(engine, { max_attempts: 2, retry_backoff_s: 0 });
      const grant = await fetchOne(engine);
      const kept = await engine.leases.heartbeat(beatFor(grant), caller);
      expect(kept.ttlRemainingMs).to.equal(engineSettings.leaseTtlS * 1000);
      await letTimePass(store.database, deliveryMs + 1);
      // The reaper was scheduled for this row, but the heartbeat has extended the lease.
      expect(await engine.services.reaper.runOnce()).to.equal(0);
      await letTimePass(store.database, engineSettings.leaseTtlS * 1000);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      expect(await jobOf(grant)).to.include({ state: 'QUEUED', attempts: 1 });
      const again = await fetchOne(engine);
      expect(again.lease.attempt).to.equal(2);
      await engine.leases.release(releaseFor(again), caller);
    });

    it('counts an attempt if the worker itself calls, although too late', async () => {
      await submitted(engine, {});
      const grant = await fetchOne(engine);
      await letTimePass(store.database, deliveryMs + 1);
      expect(await codeOf(engine.leases.end(releaseFor(grant), caller))).to.equal('lease_not_active');
      expect(await jobOf(grant)).to.include({ state: 'TIMEOUT', attempts: 1 });
    });

    it('counts an attempt if the grant lasted as long as max_runtime_s', async () => {
      await submitted(engine, { max_runtime_s: 5 });
      const grant = await fetchOne(engine);
      await letTimePass(store.database, 5_001);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      expect(await jobOf(grant)).to.include({ state: 'TIMEOUT', attempts: 1 });
    });

    it('counts an attempt after LEASEHOLD_MAX_CLAIMS unconfirmed grants in a row', async () => {
      await submitted(engine, {});
      const grants: Grant[] = [];
      for (let round = 0; round < 3; round++) {
        grants.push(await fetchOne(engine));
        await isLost();
      }
      expect(grants.map(({ lease }) => lease.attempt)).to.deep.equal([1, 1, 1]);
      expect(await jobOf(grants[0] as Grant)).to.include({ state: 'TIMEOUT', attempts: 1 });
    });

    it('restarts the count of unconfirmed grants after a confirmed one', async () => {
      await submitted(engine, { max_attempts: 9, retry_backoff_s: 0 });
      await fetchOne(engine);
      await isLost();
      const grant = await fetchOne(engine);
      const release = releaseFor(grant, { status: 'FAILED', retryable: true });
      await engine.leases.release(release, caller);
      for (let round = 0; round < 2; round++) {
        expect((await fetchOne(engine)).lease.attempt).to.equal(2);
        await isLost();
      }
      expect(await jobOf(grant)).to.include({ state: 'QUEUED', attempts: 1 });
    });

    it('cancels the job of an unconfirmed grant if cancellation was requested', async () => {
      await submitted(engine, {});
      const grant = await fetchOne(engine);
      await engine.jobs.cancel(grant.job.jobId, {}, caller);
      await isLost();
      expect(await jobOf(grant)).to.include({ state: 'CANCELED' });
    });

    it("ends a grant once when the worker's release races the deadline", async () => {
      for (let round = 0; round < 5; round++) {
        await submitted(engine, {});
        const grant = await fetchOne(engine);
        await letTimePass(store.database, deliveryMs - 20);
        const [ended, expired] = await Promise.all([
          new Promise((resolve) => setTimeout(resolve, round * 10)).then(() =>
            codeOf(engine.leases.release(releaseFor(grant), caller)),
          ),
          (async () => {
            let handled = 0;
            const until = performance.now() + 60;
            while (performance.now() < until) handled += await engine.services.reaper.runOnce();
            return handled;
          })(),
        ]);
        // On a slow machine the deadline may pass just before the worker's release.
        const all = expired + (await engine.services.reaper.runOnce());
        const { state, attempts } = await jobOf(grant);
        if (ended === 'ok') expect([state, attempts, all]).to.deep.equal(['DONE', 1, 0]);
        else expect([ended, state, attempts, all]).to.deep.equal(['lease_not_active', 'QUEUED', 0, 1]);
        await wipe(store.database);
      }
    });
  });

  describeWithRedis('the message of a job whose grant was lost', () => {
    it('keeps the stream message of a job whose grant was lost, for the same attempt', async () => {
      const stage = await openStage(kind);
      const transport = await stage.transport();
      const engine = engineOn(stage.database, engineSettings, undefined, transport);
      try {
        const [job] = await submitted(engine, { stream: 's' });
        const first = await fetchOne(engine, ['s']);
        const before = await stage.rows();
        expect(before).to.have.length(1);
        expect(first.messageId).to.equal(before[0]?.messageId);
        await letTimePass(stage.database, deliveryMs + 1);
        expect(await engine.services.reaper.runOnce()).to.equal(1);
        expect(await stage.rows()).to.deep.equal(before);
        const again = await fetchOne(engine, ['s']);
        expect(again.job.jobId).to.equal(job?.jobId);
        expect(again.messageId).to.equal(first.messageId);
        await engine.leases.release(releaseFor(again), caller);
        expect(await stage.rows()).to.deep.equal([]);
      } finally {
        await engine.stop();
        await stage.close();
      }
    });
  });
});

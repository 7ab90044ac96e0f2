/** Grants on streams: what becomes of those that did not reach their worker, and from when on they are like any other. */
import { expect } from 'chai';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import type { Engine } from '../../../src/engine/engine.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, engineSettings, letTimePass, submitted } from '../../support/jobs.ts';
import { beatFor, codeOf, fetching, releaseFor, wipe } from '../../support/lease-helpers.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { openStage } from '../../support/redis-stage.ts';

const deliveryMs = limits.deliveryS * 1000;

const fetchOne = async (engine: Engine, streams?: string[]): Promise<Grant> => {
  const [grant] = await fetching(engine, 1, streams);
  if (!grant) return expect.fail('nothing was granted');
  return grant;
};

onEveryEngine((kind) => {
  describe('a grant on a stream', () => {
    let store: TestDatabase;
    let engine: Engine;
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());
    beforeEach(async () => {
      await wipe(store.database);
      engine = engineOn(store.database, { ...engineSettings, maxClaims: 3 });
    });
    afterEach(() => engine.stop());

    const jobOf = async ({ job: { jobId } }: Grant) => (await engine.jobQueries.get(jobId, caller)).job;
    const typesOf = async ({ job: { jobId } }: Grant) =>
      (await engine.jobQueries.events(jobId, {}, caller)).items.map(({ type }) => type);
    const usedNow = async () => (await engine.capacity.get(caller)).used;
    /** Nobody was heard of for as long as a grant may be on its way. */
    const isLost = async () => {
      await letTimePass(store.database, deliveryMs + 1);
      expect(await engine.reaper.runOnce()).to.equal(1);
    };

    it('that nobody heard of comes back at its deadline, and was no attempt', async () => {
      await submitted(engine, { cost_units: 5 });
      const lost = await fetchOne(engine);
      expect(lost.lease).to.include({ attempt: 1, ttlS: engineSettings.leaseTtlS });
      expect(lost.lease.expiresAtMs - lost.lease.grantedAtMs).to.equal(deliveryMs);
      expect(await usedNow()).to.equal(5);
      await letTimePass(store.database, deliveryMs - 1_000);
      expect(await engine.reaper.runOnce()).to.equal(0);
      await isLost();
      expect(await jobOf(lost)).to.include({ state: 'QUEUED', attempts: 0, nextRetryAtMs: null });
      expect(await usedNow()).to.equal(0);
      expect(await typesOf(lost)).to.deep.equal([
        'JOB_SUBMITTED',
        'LEASE_GRANTED',
        'LEASE_EXPIRED',
        'JOB_REQUEUED',
      ]);
      const { items } = await engine.jobQueries.events(lost.job.jobId, {}, caller);
      expect(items[2]?.data).to.include({ undelivered: true, worker_id: 'w' });
      expect(items[3]?.data).to.include({ attempts: 0, retry_in_ms: 0 });
      // It did reach its worker after all, but too late.
      expect(await codeOf(engine.heartbeats.heartbeat(beatFor(lost), caller))).to.equal('lease_not_active');
      expect(await codeOf(engine.releaser.release(releaseFor(lost), caller))).to.equal('lease_not_active');
      const next = await fetchOne(engine);
      expect(next.lease.attempt).to.equal(1);
      expect(Number(next.lease.fence)).to.be.above(Number(lost.lease.fence));
      await engine.releaser.release(releaseFor(next), caller);
      expect(await jobOf(next)).to.include({ state: 'DONE', attempts: 1 });
    });

    it('is like any other from the first sign of life on', async () => {
      await submitted(engine, { max_attempts: 2, retry_backoff_s: 0 });
      const grant = await fetchOne(engine);
      const kept = await engine.heartbeats.heartbeat(beatFor(grant), caller);
      expect(kept.ttlRemainingMs).to.equal(engineSettings.leaseTtlS * 1000);
      await letTimePass(store.database, deliveryMs + 1);
      // Its row was put down for a look; it has been renewed.
      expect(await engine.reaper.runOnce()).to.equal(0);
      await letTimePass(store.database, engineSettings.leaseTtlS * 1000);
      expect(await engine.reaper.runOnce()).to.equal(1);
      expect(await jobOf(grant)).to.include({ state: 'QUEUED', attempts: 1 });
      const again = await fetchOne(engine);
      expect(again.lease.attempt).to.equal(2);
      await engine.releaser.release(releaseFor(again), caller);
    });

    it('was an attempt where its worker says so itself, though too late', async () => {
      await submitted(engine, {});
      const grant = await fetchOne(engine);
      await letTimePass(store.database, deliveryMs + 1);
      expect(await codeOf(engine.releaser.end(releaseFor(grant), caller))).to.equal('lease_not_active');
      expect(await jobOf(grant)).to.include({ state: 'TIMEOUT', attempts: 1 });
    });

    it('was an attempt where it has lasted as long as its job may run', async () => {
      await submitted(engine, { max_runtime_s: 5 });
      const grant = await fetchOne(engine);
      await letTimePass(store.database, 5_001);
      expect(await engine.reaper.runOnce()).to.equal(1);
      expect(await jobOf(grant)).to.include({ state: 'TIMEOUT', attempts: 1 });
    });

    it('that is lost as often in a row as claims may be costs an attempt', async () => {
      await submitted(engine, {});
      const grants: Grant[] = [];
      for (let round = 0; round < 3; round++) {
        grants.push(await fetchOne(engine));
        await isLost();
      }
      expect(grants.map(({ lease }) => lease.attempt)).to.deep.equal([1, 1, 1]);
      expect(await jobOf(grants[0] as Grant)).to.include({ state: 'TIMEOUT', attempts: 1 });
    });

    it('that got there in between begins the count anew', async () => {
      await submitted(engine, { max_attempts: 9, retry_backoff_s: 0 });
      await fetchOne(engine);
      await isLost();
      const grant = await fetchOne(engine);
      const release = releaseFor(grant, { status: 'FAILED', retryable: true });
      await engine.releaser.release(release, caller);
      for (let round = 0; round < 2; round++) {
        expect((await fetchOne(engine)).lease.attempt).to.equal(2);
        await isLost();
      }
      expect(await jobOf(grant)).to.include({ state: 'QUEUED', attempts: 1 });
    });

    it('that is lost ends its job where somebody wanted it canceled', async () => {
      await submitted(engine, {});
      const grant = await fetchOne(engine);
      await engine.jobUpdater.cancel(grant.job.jobId, {}, caller);
      await isLost();
      expect(await jobOf(grant)).to.include({ state: 'CANCELED' });
    });

    it('is handed in once, by whoever is first: its worker or its deadline', async () => {
      for (let round = 0; round < 5; round++) {
        await submitted(engine, {});
        const grant = await fetchOne(engine);
        await letTimePass(store.database, deliveryMs - 20);
        const [ended, expired] = await Promise.all([
          new Promise((resolve) => setTimeout(resolve, round * 10)).then(() =>
            codeOf(engine.releaser.release(releaseFor(grant), caller)),
          ),
          (async () => {
            let handled = 0;
            const until = performance.now() + 60;
            while (performance.now() < until) handled += await engine.reaper.runOnce();
            return handled;
          })(),
        ]);
        // On a slow machine the deadline may pass only just before the worker comes.
        const all = expired + (await engine.reaper.runOnce());
        const { state, attempts } = await jobOf(grant);
        if (ended === 'ok') expect([state, attempts, all]).to.deep.equal(['DONE', 1, 0]);
        else expect([ended, state, attempts, all]).to.deep.equal(['lease_not_active', 'QUEUED', 0, 1]);
        await wipe(store.database);
      }
    });
  });

  describeWithRedis('the message of a job whose grant was lost', () => {
    it('stays where it is: the same attempt is still to be made', async () => {
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
        expect(await engine.reaper.runOnce()).to.equal(1);
        expect(await stage.rows()).to.deep.equal(before);
        const again = await fetchOne(engine, ['s']);
        expect(again.job.jobId).to.equal(job?.jobId);
        expect(again.messageId).to.equal(first.messageId);
        await engine.releaser.release(releaseFor(again), caller);
        expect(await stage.rows()).to.deep.equal([]);
      } finally {
        await engine.stop();
        await stage.close();
      }
    });
  });
});

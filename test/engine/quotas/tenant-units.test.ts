/**
 * A tenant's leases and claimed jobs never exceed its quota of units, whichever call takes them and on
 * whichever server, and its jobs never hold up those of other tenants.
 */
import { expect } from 'chai';
import type { Grant, LeaseOutcome } from '../../../src/domain/leases/lease.ts';
import { tenantsFull } from '../../../src/engine/quotas/tenant-units.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquire, acquired, expectDenied, fetching, releaseFor } from '../../support/lease-helpers.ts';

const isGrant = (outcome: LeaseOutcome): outcome is Grant => outcome.kind === 'granted';

describe('the quota of units of a tenant', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let servers: [TestedEngine, TestedEngine];
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      servers = [engineOn(store.database), engineOn(store.database)];
      [engine] = servers;
    });
    afterEach(async () => {
      for (const server of servers) await server.stop();
      await store.close();
    });

    const setQuota = async (addon_id: string, max_units: number | null) => {
      await engine.quotas.set({ addon_id, max_units }, caller);
      for (const { services } of servers) await services.quotaBook.runOnce();
    };

    const claim = (server: TestedEngine, limit: number, more: object = {}) =>
      server.jobs.claim({ worker_id: 'claimer', limit, ...more }, caller);

    /** Units of active leases and claimed jobs, counted from the rows themselves. */
    const unitsOf = async (addonId: string): Promise<number> => {
      const [row] = await store.database.query<{ units: string }>(
        `select coalesce(sum(live.cost_units), 0) as units from live_jobs live
          join jobs on jobs.job_id = live.job_id where jobs.addon_id = $1 and live.claimed_by is not null`,
        [addonId],
      );
      return Number(row?.units);
    };

    const addonsOf = (grants: readonly Grant[]) => grants.map(({ job }) => job.addonId);

    it('leaves its jobs waiting, and grants those of other tenants behind them', async () => {
      await setQuota('shop', 2);
      const urgent = { addon_id: 'shop', priority: 'URGENT' as const };
      const others = [{ addon_id: 'a' }, { addon_id: 'b' }];
      const jobs = await submitted(engine, urgent, urgent, urgent, urgent, ...others);
      const grants = [];
      for (let i = 0; i < 4; i++) grants.push(await acquired(engine, `w${i}`));
      expect(addonsOf(grants)).to.deep.equal(['shop', 'shop', 'a', 'b']);
      expect(expectDenied(await acquire(engine, 'w')).reason).to.equal(tenantsFull);
      const third = jobs[2]?.jobId ?? '';
      const { summary, causes } = await engine.jobs.explain(third, caller);
      expect(causes[0]).to.include({
        code: 'tenant_quota',
        text: 'it needs 1 unit, and shop uses 2 of its quota of 2',
      });
      expect(summary).to.include('needs 1 unit, shop uses 2 of its 2');
      await engine.leases.release(releaseFor(grants[0] as Grant), caller);
      expect((await acquired(engine, 'w')).job.addonId).to.equal('shop');
      await setQuota('shop', null);
      expect((await acquired(engine, 'w5')).job.addonId).to.equal('shop');
    });

    it('holds for a batch, a stream with credit, and a queue longer than what is read', async () => {
      await setQuota('shop', 3);
      await Promise.all(Array.from({ length: 150 }, () => submitted(engine, { addon_id: 'shop' })));
      await submitted(engine, { addon_id: 'a' }, { addon_id: 'a' });
      const streamed = await fetching(engine, 20);
      expect(addonsOf(streamed)).to.deep.equal(['shop', 'shop', 'shop', 'a', 'a']);
      expect(await unitsOf('shop')).to.equal(3);
      await submitted(engine, { addon_id: 'b' }, { addon_id: 'b' });
      const outcomes = await Promise.all([0, 1, 2].map((n) => acquire(engine, `w${n}`)));
      expect(addonsOf(outcomes.filter(isGrant))).to.deep.equal(['b', 'b']);
    });

    it('lets a large job block later jobs of its tenant alone', async () => {
      await setQuota('shop', 5);
      const large = { addon_id: 'shop', cost_units: 3 };
      await submitted(engine, large, large, { addon_id: 'shop' }, { addon_id: 'a', cost_units: 4 });
      const first = await acquired(engine, 'w1');
      expect(first.job.costUnits).to.equal(3);
      expect((await acquired(engine, 'w2')).job.addonId).to.equal('a');
      expectDenied(await acquire(engine, 'w3'));
      await engine.leases.release(releaseFor(first), caller);
      expect((await acquired(engine, 'w3')).job.costUnits).to.equal(3);
      expect((await acquired(engine, 'w4')).job.costUnits).to.equal(1);
    });

    it('counts claimed jobs, whose leases then need no further units', async () => {
      await setQuota('shop', 2);
      const jobs = Array.from({ length: 4 }, () => ({ addon_id: 'shop' }));
      await submitted(engine, ...jobs, { addon_id: 'a' });
      const claimed = await claim(engine, 10);
      expect(claimed.map(({ addonId }) => addonId)).to.deep.equal(['shop', 'shop', 'a']);
      expect(await claim(engine, 10, { request_id: 'r' })).to.deep.equal([]);
      expectDenied(await acquire(engine, 'w'));
      const leases = await Promise.all(
        claimed.map(({ jobId }) => engine.leases.request({ job_id: jobId, worker_id: 'claimer' }, caller)),
      );
      expect(leases.every(isGrant)).to.equal(true);
      expect(await unitsOf('shop')).to.equal(2);
    });

    it('gives the units of a release to a request of the same batch', async () => {
      await setQuota('shop', 1);
      await submitted(engine, { addon_id: 'shop' }, { addon_id: 'shop' });
      const held = await acquired(engine, 'w');
      const waiting = acquired(engine, 'w', { wait_ms: 20_000 });
      await engine.leases.release(releaseFor(held), caller);
      expect((await waiting).job.addonId).to.equal('shop');
    });

    it('is never exceeded by claims and requests that meet on two servers', async () => {
      await setQuota('shop', 5);
      await setQuota('mill', 3);
      const commands = ['shop', 'mill', 'free'].flatMap((addon_id) =>
        Array.from({ length: 60 }, (_, i) => ({ addon_id, cost_units: (i % 3) + 1 })),
      );
      await Promise.all(commands.map((command) => submitted(engine, command)));
      let isOver = false;
      const excess: string[] = [];
      const watch = (async () => {
        while (!isOver) {
          for (const [addonId, max] of [
            ['shop', 5],
            ['mill', 3],
          ] as const) {
            const units = await unitsOf(addonId);
            if (units > max) excess.push(`${addonId}: ${units} of ${max}`);
          }
        }
      })();
      const done = new Map<string, number>();
      const ended = (addonId: string) => done.set(addonId, (done.get(addonId) ?? 0) + 1);
      const total = () => [...done.values()].reduce((sum, n) => sum + n, 0);
      const work = async (server: TestedEngine, name: string) => {
        for (let turn = 0; total() < commands.length && turn < 500; turn++) {
          const outcome = await acquire(server, name, { wait_ms: 200 });
          if (!isGrant(outcome)) continue;
          await server.leases.release(releaseFor(outcome), caller);
          ended(outcome.job.addonId);
        }
      };
      const claimAndWork = async (server: TestedEngine, name: string) => {
        for (let turn = 0; total() < commands.length && turn < 500; turn++) {
          for (const { jobId } of await server.jobs.claim({ worker_id: name, limit: 4 }, caller)) {
            const outcome = await server.leases.request({ job_id: jobId, worker_id: name }, caller);
            if (!isGrant(outcome)) throw new Error(`a claimed job got no lease: ${outcome.reason}`);
            await server.leases.release(releaseFor(outcome), caller);
            ended(outcome.job.addonId);
          }
        }
      };
      await Promise.all(
        servers.flatMap((server, s) =>
          [0, 1, 2].flatMap((n) => [work(server, `w${s}${n}`), claimAndWork(server, `c${s}${n}`)]),
        ),
      );
      isOver = true;
      await watch;
      expect(excess).to.deep.equal([]);
      expect(Object.fromEntries(done)).to.deep.equal({ shop: 60, mill: 60, free: 60 });
      const found = await engine.quotas.list(caller);
      expect(found.map(({ use }) => use.units)).to.deep.equal([0, 0]);
    });
  });
});

import { expect } from 'chai';
import { limits } from '../../../src/domain/limits.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';
import {
  acquire,
  acquired,
  beatFor,
  expectDenied,
  expectGranted,
  Holder,
  moreServers,
  releaseFor,
} from '../../support/lease-helpers.ts';

describe('leases beside other leases', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    it('extends a lease beside one with the longest permitted runtime', async () => {
      await submitted(engine, { max_runtime_s: limits.maxRuntimeS }, {});
      const grants = [await acquired(engine), await acquired(engine)];
      const verdicts = await engine.leases.heartbeatMany(grants.map((grant) => beatFor(grant)));
      expect(verdicts.map(({ kind: what }) => what)).to.deep.equal(['extended', 'extended']);
    });

    it('merges several heartbeats of a lease in one batch, and the last value counts', async () => {
      await submitted(engine, {});
      const grant = await acquired(engine);
      const beats = [{ progress: 0.1, message: 'one' }, {}, { progress: 0.3 }, {}].map((said) =>
        beatFor(grant, said),
      );
      const verdicts = await engine.leases.heartbeatMany(beats);
      expect(verdicts.every(({ kind: what }) => what === 'extended')).to.equal(true);
      const { job } = await engine.jobs.get(grant.job.jobId, caller);
      expect(job).to.include({ progress: 0.3, note: 'one' });
    });

    it('grants a job behind hundreds of jobs that exceed the total capacity', async () => {
      const tooLarge = Array.from({ length: 450 }, () => ({ cost_units: 101 }));
      const [first] = await submitted(engine, ...tooLarge.slice(0, 1));
      await Promise.all(tooLarge.slice(1).map((command) => submitted(engine, command)));
      const [small] = await submitted(engine, {});
      expect((await acquired(engine)).job.jobId).to.equal(small?.jobId);
      const told = (await engine.jobs.events(first?.jobId ?? '', {}, caller)).items.map(({ type }) => type);
      expect(told).to.deep.equal(['JOB_SUBMITTED', 'JOB_UNSCHEDULABLE']);
      expectDenied(await acquire(engine, 'w'));
      await engine.capacity.set({ total: 500 }, caller);
      expect((await acquired(engine)).job.jobId).to.equal(first?.jobId);
    });

    it('denies a worker with a lease a unique job, also when it claims first', async () => {
      const [unique, common] = await submitted(engine, { unique: true }, { addon_id: 'other' });
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      const held = await acquired(engine);
      expect([held.lease.workerId, held.job.jobId]).to.deep.equal(['w', common?.jobId]);
      const ask = { job_id: unique?.jobId ?? '' };
      expect(expectDenied(await engine.leases.request(ask, caller)).reason).to.match(/unique/);
      await engine.leases.release(releaseFor(held), caller);
      expectGranted(await engine.leases.request(ask, caller));
    });

    if (kind.name === 'postgresql') {
      it('does not let small jobs overtake a large one when two servers grant', async () => {
        const { engines, stop } = await moreServers(store, 2);
        try {
          await engine.capacity.set({ total: 10 }, caller);
          await submitted(engine, ...Array.from({ length: 10 }, () => ({})));
          const running = await Promise.all(Array.from({ length: 10 }, (_, i) => acquired(engine, `r${i}`)));
          const [large] = await submitted(engine, { cost_units: 10, priority: 'URGENT' });
          await Promise.all(Array.from({ length: 200 }, () => submitted(engine, {})));
          let isOver = false;
          const overtakers: string[] = [];
          const ask = async (server: TestedEngine, workerId: string): Promise<void> => {
            while (!isOver) {
              const outcome = await acquire(server, workerId);
              if (outcome.kind === 'denied') continue;
              if (outcome.job.jobId === large?.jobId) isOver = true;
              else overtakers.push(outcome.job.jobId);
            }
          };
          const asking = engines.flatMap((server, i) => [0, 1, 2].map((n) => ask(server, `w${i}.${n}`)));
          for (const grant of running) await engine.leases.release(releaseFor(grant), caller);
          await Promise.all(asking);
          expect(overtakers).to.deep.equal([]);
        } finally {
          await stop();
        }
      });

      it('releases a lease while the row of another one is locked', async () => {
        await submitted(engine, {}, {});
        const [free, held] = [await acquired(engine), await acquired(engine)];
        const holder = await Holder.holdJobs(store, [held.job.jobId]);
        const late = engine.leases.release(releaseFor(held), caller);
        expect((await engine.leases.release(releaseFor(free), caller)).job.state).to.equal('DONE');
        await holder.untilWaiting(1);
        await holder.letGo();
        expect((await late).job.state).to.equal('DONE');
      });
    }
  });
});

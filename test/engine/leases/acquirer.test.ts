import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, engineOn, submitted } from '../../support/jobs.ts';
import {
  acquire,
  acquired,
  beatFor,
  expectDenied,
  fetching,
  freshForEach,
  releaseFor,
} from '../../support/lease-helpers.ts';

describe('Acquirer', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    const typesOf = async (jobId: string | undefined) =>
      (await stage.engine.jobs.events(jobId ?? '', {}, caller)).items.map(({ type }) => type);
    const jobOf = async (workerId: string, more: object = {}) =>
      (await acquired(stage.engine, workerId, more)).job.jobId;

    it("grants the first queued job that fits the worker's limit and capabilities", async () => {
      const [large, gpu, small] = await submitted(
        stage.engine,
        { cost_units: 50, priority: 'URGENT' },
        { constraints: { gpu_required: true }, priority: 'HIGH' },
        {},
      );
      expect(await jobOf('a', { max_units: 10 })).to.equal(small?.jobId);
      expect(await jobOf('b', { constraints_capabilities: { gpu_available: true } })).to.equal(large?.jobId);
      expect(expectDenied(await acquire(stage.engine, 'c')).reason).to.equal('No jobs available');
      expect(await jobOf('d', { constraints_capabilities: { gpu_available: true } })).to.equal(gpu?.jobId);
    });

    it("grants no job smaller than the first one, and denies with the contract's text", async () => {
      await stage.engine.capacity.set({ total: 70 }, caller);
      await submitted(stage.engine, { cost_units: 60 }, { cost_units: 30 }, { cost_units: 1 });
      await acquired(stage.engine);
      const denied = expectDenied(await acquire(stage.engine, 'w'));
      expect(denied.reason).to.equal('Capacity exceeded: used=60, requested=30, capacity=70');
      expectDenied(await acquire(stage.engine, 'w', { max_units: 30 }));
      expect((await acquired(stage.engine, 'w', { max_units: 29 })).job.costUnits).to.equal(1);
    });

    it("denies with the contract's text while leases use all usable units", async () => {
      await stage.engine.capacity.set({ total: 50 }, caller);
      await submitted(stage.engine, { cost_units: 10 }, {});
      await acquired(stage.engine);
      await stage.engine.capacity.set({ busy_rating: 8 }, caller);
      expect(expectDenied(await acquire(stage.engine, 'w')).reason).to.equal(
        'No capacity (busy=8, usable=10, leased=10)',
      );
    });

    it('denies after the total was lowered below used units, until units are free again', async () => {
      await submitted(stage.engine, { cost_units: 40 }, { cost_units: 40 }, { cost_units: 5 });
      const [first, second] = [await acquired(stage.engine), await acquired(stage.engine)];
      expect(await stage.engine.capacity.set({ total: 50 }, caller)).to.include({ used: 80, available: -30 });
      await stage.engine.leases.heartbeat(beatFor(first), caller);
      await stage.engine.leases.release(releaseFor(first), caller);
      expect(await stage.engine.capacity.get(caller)).to.include({ used: 40, available: 10 });
      await acquired(stage.engine);
      await stage.engine.leases.release(releaseFor(second), caller);
      expect(await stage.engine.capacity.get(caller)).to.include({ used: 5, available: 45 });
    });

    it('skips unique jobs for a worker that holds a lease and grants the job behind them', async () => {
      const many = Array.from({ length: 60 }, () => ({ unique: true }));
      const jobs = await submitted(stage.engine, {}, ...many, {});
      expect(await jobOf('holder')).to.equal(jobs[0]?.jobId);
      expect(await jobOf('holder')).to.equal(jobs.at(-1)?.jobId);
      expect(expectDenied(await acquire(stage.engine, 'holder')).reason).to.equal('No jobs available');
      expect(await jobOf('other')).to.equal(jobs[1]?.jobId);
    });

    it('grants a unique job to a worker whose lease has ended', async () => {
      const [, unique] = await submitted(stage.engine, {}, { unique: true });
      const grant = await acquired(stage.engine);
      expectDenied(await acquire(stage.engine, 'w'));
      await stage.engine.leases.release(releaseFor(grant), caller);
      expect(await jobOf('w')).to.equal(unique?.jobId);
    });

    it('grants concurrent requests no job twice and at most one unique job per worker', async () => {
      await submitted(stage.engine, ...Array.from({ length: 20 }, (_, i) => ({ unique: i % 2 === 0 })));
      const workers = Array.from({ length: 30 }, (_, i) => `w${i % 4}`);
      const outcomes = await Promise.all(workers.map((worker) => acquire(stage.engine, worker)));
      const granted = outcomes.flatMap((outcome) => (outcome.kind === 'granted' ? outcome : []));
      expect(new Set(granted.map(({ job }) => job.jobId)).size).to.equal(granted.length);
      const firsts = new Set<string>();
      // Ids rise with the order of the grants.
      for (const { lease, job } of granted.sort((a, b) => (a.lease.leaseId < b.lease.leaseId ? -1 : 1))) {
        if (job.unique) expect(firsts.has(lease.workerId), 'a unique job for a holder').to.equal(false);
        firsts.add(lease.workerId);
      }
      expect(granted.filter(({ job }) => !job.unique)).to.have.length(10);
    });

    it('parks a job above the total capacity, records that once, and grants the others', async () => {
      const [giant, small] = await submitted(stage.engine, { cost_units: 101 }, {}, {});
      expect(await jobOf('w')).to.equal(small?.jobId);
      await acquired(stage.engine);
      expectDenied(await acquire(stage.engine, 'w'));
      expect(await typesOf(giant?.jobId)).to.deep.equal(['JOB_SUBMITTED', 'JOB_UNSCHEDULABLE']);
      const { job } = await stage.engine.jobs.get(giant?.jobId ?? '', caller);
      expect(job).to.include({ state: 'QUEUED', nextRetryAtMs: null });
      await stage.engine.services.reaper.runOnce();
      expectDenied(await acquire(stage.engine, 'w'));
      await stage.engine.capacity.set({ total: 103 }, caller);
      expect(await jobOf('w')).to.equal(giant?.jobId);
      expect(await typesOf(giant?.jobId)).to.deep.equal([
        'JOB_SUBMITTED',
        'JOB_UNSCHEDULABLE',
        'LEASE_GRANTED',
      ]);
    });
  });
});

describe('a request for many jobs', () => {
  onEveryEngine((kind) => {
    it('grants 100 jobs although a later candidate exceeds the total capacity', async () => {
      const store = await kind.open();
      const engine = engineOn(store.database);
      try {
        await submitted(engine, ...Array.from({ length: 220 }, () => ({})), { cost_units: 101 });
        const grants = await fetching(engine, 300);
        expect(grants).to.have.length(100);
      } finally {
        await engine.stop();
        await store.close();
      }
    });
  });
});

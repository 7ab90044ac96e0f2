import { expect } from 'chai';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  caller,
  engineOn,
  engineSettings,
  letTimePass,
  submitted,
  type TestedEngine,
} from '../../support/jobs.ts';

const hourMs = 3_600_000;

describe('LeaseReaper', () => {
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

    const eventsOf = async (jobId: string) => (await engine.jobs.events(jobId, {}, caller)).items;
    const claim = async (workerId = 'w') => engine.jobs.claim({ worker_id: workerId }, caller);

    it('keeps a claim that has not expired', async () => {
      await submitted(engine, {});
      await claim();
      await letTimePass(store.database, 59_000);
      expect(await engine.services.reaper.runOnce()).to.equal(0);
    });

    it('requeues a job with an expired claim to its old position, and records the worker', async () => {
      const [first, second] = await submitted(engine, {}, {});
      const [claimed] = await claim('slow');
      expect(claimed?.jobId).to.equal(first?.jobId);
      await letTimePass(store.database, 61_000);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      const { job } = await engine.jobs.get(first?.jobId ?? '', caller);
      expect(job).to.include({
        state: 'QUEUED',
        claimedBy: null,
        claimExpiresAtMs: null,
        nextRetryAtMs: null,
      });
      const lost = (await eventsOf(job.jobId)).at(-1);
      expect(lost).to.include({ type: 'CLAIM_EXPIRED' });
      expect(lost?.data).to.include({
        by: 'reaper',
        from: 'CLAIMED',
        to: 'QUEUED',
        worker_id: 'slow',
        claims_lost: 1,
      });
      expect(await claim()).to.have.nested.property('[0].jobId', first?.jobId);
      expect(await claim()).to.have.nested.property('[0].jobId', second?.jobId);
    });

    it('fails a job after too many expired claims in a row', async () => {
      const [job] = await submitted(engine, {});
      for (let i = 0; i < engineSettings.maxClaims; i++) {
        expect(await claim(`w${i}`)).to.have.length(1);
        await letTimePass(store.database, 61_000);
        await engine.services.reaper.runOnce();
      }
      const found = await engine.jobs.get(job?.jobId ?? '', caller);
      expect(found.job.state).to.equal('FAILED');
      expect(found.result).to.include({ status: 'FAILED', attempts: 0 });
      expect(found.result?.error).to.include('3 claims in a row');
      const types = (await eventsOf(found.job.jobId)).map(({ type }) => type);
      expect(types.slice(-2)).to.deep.equal(['CLAIM_EXPIRED', 'JOB_FAILED']);
      expect(await claim()).to.deep.equal([]);
    });

    it('makes a job ready at its run_at and not before', async () => {
      await submitted(engine, { run_at: new Date(Date.now() + hourMs).toISOString() });
      await engine.services.reaper.runOnce();
      expect(await claim()).to.deep.equal([]);
      await letTimePass(store.database, hourMs + 1_000);
      await engine.services.reaper.runOnce();
      expect(await claim()).to.have.length(1);
    });

    it('handles more than one batch in a round', async () => {
      const jobs = await submitted(engine, ...Array.from({ length: 1_201 }, () => ({})));
      await engine.jobs.claim({ worker_id: 'w', limit: 1_000 }, caller);
      await engine.jobs.claim({ worker_id: 'w', limit: 1_000 }, caller);
      await letTimePass(store.database, 61_000);
      expect(await engine.services.reaper.runOnce()).to.equal(jobs.length);
      expect(await engine.services.reaper.runOnce()).to.equal(0);
    });

    it('sleeps until the nearest deadline, and ends a claim of one second after a second', async () => {
      const quick = engineOn(store.database, { ...engineSettings, claimTtlS: 1 });
      quick.start();
      quick.start();
      try {
        const [job] = await submitted(quick, {});
        await quick.jobs.claim({ worker_id: 'w' }, caller);
        for await (const { events } of quick.jobs.watch(job?.jobId ?? '', null, caller)) {
          if (events.some(({ type }) => type === 'CLAIM_EXPIRED')) break;
        }
        const [, claimed, expired] = await eventsOf(job?.jobId ?? '');
        const late = (expired?.tsMs ?? 0) - (claimed?.tsMs ?? 0) - 1_000;
        expect(late).to.be.within(0, 250);
      } finally {
        await quick.stop();
        await quick.stop();
      }
    });

    if (kind.name === 'postgresql') {
      it('handles every expiry once across the reapers of several servers', async () => {
        const others = await Promise.all([1, 2, 3].map(() => openDatabase(store.options)));
        try {
          await submitted(engine, ...Array.from({ length: 900 }, () => ({})));
          await engine.jobs.claim({ worker_id: 'w', limit: 900 }, caller);
          await letTimePass(store.database, 61_000);
          const reapers = others.map((database) => engineOn(database).services.reaper);
          const handled = await Promise.all(reapers.map((reaper) => reaper.runOnce()));
          const left = await engine.services.reaper.runOnce();
          expect(handled.reduce((sum, n) => sum + n, left)).to.equal(900);
          const told = await store.database.query<{ n: number; jobs: number }>(
            'select count(*)::int as n, count(distinct job_id)::int as jobs from job_events where type = 9',
            [],
          );
          expect(told).to.deep.equal([{ n: 900, jobs: 900 }]);
        } finally {
          await Promise.all(others.map((database) => database.close()));
        }
      });

      it('skips a locked row and handles it in a later round', async () => {
        const [held] = await submitted(engine, {}, {});
        await engine.jobs.claim({ worker_id: 'w', limit: 2 }, caller);
        await letTimePass(store.database, 61_000);
        await store.database.transaction(async (sql) => {
          await sql.query('select from live_jobs where job_id = $1 for update', [held?.jobId]);
          expect(await engine.services.reaper.runOnce()).to.equal(1);
        });
        expect(await engine.services.reaper.runOnce()).to.equal(1);
      });
    }
  });
});

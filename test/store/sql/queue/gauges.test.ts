import { expect } from 'chai';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import { readQueueGauges, readyMax } from '../../../../src/store/sql/queue/gauges.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../../support/jobs.ts';
import { rowsTouched } from '../../../support/rows-touched.ts';

describe('gauges of the queue', () => {
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

    const older = (jobId: string, seconds: number) =>
      store.database.query(
        "update live_jobs set updated_at = updated_at - $2::int * interval '1 second' where job_id = $1",
        [jobId, seconds],
      );

    it('reports zeros for an empty database', async () => {
      expect(await readQueueGauges(store.database, 70)).to.deep.equal({
        queued: 0,
        ready: 0,
        oldestMs: null,
        deadLetters: 0,
        leases: 0,
        claims: 0,
        total: 70,
        busyRating: 0,
        used: 0,
        reserved: 0,
      });
    });

    it('reports the oldest ready head of all lanes and priorities', async () => {
      const later = new Date(Date.now() + 3_600_000).toISOString();
      const [first, second, last, delayed] = await submitted(
        engine,
        { addon_id: 'a', priority: 'HIGH' },
        { addon_id: 'b', priority: 'LOW' },
        { addon_id: 'b', priority: 'HIGH' },
        { addon_id: 'c', run_at: later },
      );
      for (const [job, seconds] of [
        [first, 10],
        [last, 30],
        [second, 500],
        [delayed, 9_000],
      ] as const) {
        await older(job?.jobId ?? '', seconds);
      }
      const { queued, ready, oldestMs } = await readQueueGauges(store.database, 100);
      expect([queued, ready]).to.deep.equal([4, 3]);
      expect(oldestMs).to.be.within(500_000, 600_000);
      // Claimed jobs no longer wait.
      await engine.jobs.claim({ worker_id: 'w', addon_id: 'b', limit: 2 }, caller);
      const left = await readQueueGauges(store.database, 100);
      expect(left).to.include({ queued: 2, ready: 1, claims: 2, reserved: 2 });
      expect(left.oldestMs).to.be.within(10_000, 110_000);
    });

    it('counts all jobs, aggregated or not, and touches few rows', async () => {
      const { settings } = engine;
      const submit = (jobs: number) => {
        const one = () => draft({ addon_id: 'a', job_type: 't', cost_units: 3 }, false, settings);
        return engine.jobs.submitMany(Array.from({ length: jobs }, one), caller);
      };
      await submit(12_000);
      await store.database.query(
        `update live_jobs set state = 1, claimed_by = 'w' where seq / 4 % 12 = 0`,
        [],
      );
      await engine.services.statsAggregator.audit();
      const truth = { queued: 11_000, claims: 1_000, reserved: 3_000, ready: readyMax };
      expect(await readQueueGauges(store.database, 100)).to.include(truth);
      await engine.services.statsAggregator.runOnce();
      expect(await readQueueGauges(store.database, 100)).to.include(truth);
      await submit(7);
      expect(await readQueueGauges(store.database, 100)).to.include({ ...truth, queued: 11_007 });
      const touched = await rowsTouched(store.database, (sql) => readQueueGauges(sql, 100));
      expect(touched, 'rows of jobs').to.be.below(readyMax + 10);
    });
  });
});

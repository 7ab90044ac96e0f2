import { expect } from 'chai';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import {
  readDeadLetters,
  readHeads,
  readSilentLeases,
  readTooCostly,
} from '../../../../src/store/sql/doctor/queue-facts.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { caller, engineOn, type TestedEngine } from '../../../support/jobs.ts';
import { rowsTouched } from '../../../support/rows-touched.ts';

describe('a diagnosis of a long queue', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async function () {
      this.timeout(60_000);
      store = await kind.open();
      engine = engineOn(store.database);
      const drafts = ['a', 'b', 'c'].map((job_type) =>
        draft({ addon_id: 'x', job_type, cost_units: 1 }, false, engine.settings),
      );
      await engine.jobs.submitMany(drafts, caller);
      // Half of the rows are queued. Each of the others has a lease with a heartbeat just now.
      await store.database.query(
        `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, check_at, attempts, attempts_limit,
          claims_lost, cancel_requested, updated_at, started_at, lease_ttl_s, expires_at)
        select gen_random_uuid(), lane_id, 1000 + n, 1, 1, 1, case when n % 2 = 0 then 0 else 5 end,
          case when n % 2 = 0 then null else clock_timestamp() + interval '60 s' end, 0, 1, 0, false, now(),
          clock_timestamp(), 60, clock_timestamp() + interval '60 s'
        from live_jobs, generate_series(1, 20000) n`,
        [],
      );
      await store.database.query('analyze live_jobs', []);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    it('reads the heads of lanes and a bounded number of leases (A4)', async () => {
      const heads = await rowsTouched(store.database, async (sql) => {
        expect((await readHeads(sql)).heads).to.have.length(6);
      });
      expect(heads, 'heads').to.be.below(60);
      const silent = await rowsTouched(store.database, (sql) => readSilentLeases(sql));
      expect(silent, 'leases').to.be.within(5_000, 5_100);
      const costly = await rowsTouched(store.database, (sql) => readTooCostly(sql));
      expect(costly, 'jobs put aside').to.be.below(10);
    });

    it('stops counting dead letters at ten thousand (A4)', async () => {
      await store.database.query(
        `insert into job_outcomes (job_id, state, attempts, cancel_requested, finished_at, dead_stream)
        select gen_random_uuid(), 7, 1, false, now(), case when n % 5 = 0 then 's' || n % 7 end
        from generate_series(1, 60000) n`,
        [],
      );
      await store.database.query('analyze job_outcomes', []);
      const touched = await rowsTouched(
        store.database,
        async (sql) => {
          const jobs = (await readDeadLetters(sql)).reduce((sum, { jobs }) => sum + jobs, 0);
          expect(jobs).to.equal(10_001);
        },
        ['job_outcomes'],
      );
      expect(touched).to.be.below(10_100);
    });
  });
});

import { expect } from 'chai';
import type { Engine } from '../../src/engine/engine.ts';
import { draft } from '../../src/engine/submit.ts';
import type { Sql } from '../../src/store/sql.ts';
import { lockDueJobs, lockLiveJobs } from '../../src/store/statements/change-jobs.ts';
import { claimJobs } from '../../src/store/statements/claim-jobs.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';
import { caller, engineOn } from '../support/jobs.ts';
import { rowsTouched } from '../support/rows-touched.ts';

const anything = { addonId: null, jobTypes: null, maxCostUnits: null, available: [], refused: [] };
const jobs = 20_000;

describe('the plans of hot statements', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: Engine;
    let ids: string[];
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    const slots = Array.from({ length: 10 }, () => ({ workerId: 'w', requestId: null }));
    const claimTen = (sql: Sql) => claimJobs(sql, anything, slots, 60_000);

    const stays = async (when: string) => {
      expect(await rowsTouched(store.database, claimTen), `a claim ${when}`).to.be.below(400);
      const locking = await rowsTouched(store.database, (sql) => lockLiveJobs(sql, ids.slice(0, 10)));
      expect(locking, `locking ten rows ${when}`).to.be.below(50);
      const due = await rowsTouched(store.database, (sql) => lockDueJobs(sql, 500));
      expect(due, `looking for what is due ${when}`).to.be.below(50);
    };

    it('do not change with what the statistics say of the queue', async function () {
      this.timeout(60_000);
      await store.database.query('analyze live_jobs', []);
      const drafts = Array.from({ length: jobs }, () =>
        draft({ addon_id: 'a', job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      await engine.submitter.submitMany(drafts, caller);
      ids = drafts.map(({ jobId }) => jobId);
      await stays('after an ANALYZE of the empty table');
      await store.database.query('analyze live_jobs', []);
      await stays('after an ANALYZE with everything queued');
      await store.database.query(
        "update live_jobs set state = 1, claimed_by = 'w', check_at = now() + interval '1 hour', claim_expires_at = now() + interval '1 hour'",
        [],
      );
      await store.database.query('analyze live_jobs', []);
      await store.database.query('update live_jobs set state = 0, check_at = null, claimed_by = null', []);
      await stays('after an ANALYZE with everything claimed');
    });
  });
});

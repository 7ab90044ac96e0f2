import { expect } from 'chai';
import type { Sql } from '../../../../src/store/connection/sql.ts';
import {
  pendingWalks,
  pruneSlice,
  sliceRows,
  wakeWalks,
  walks,
} from '../../../../src/store/sql/maintenance/prune.ts';
import { letEndsAge, letJobsAge, multiplyEnded } from '../../../support/age.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../../support/jobs.ts';
import { acquired, releaseFor } from '../../../support/lease-helpers.ts';
import { rowsTouched } from '../../../support/rows-touched.ts';

const tables = ['jobs', 'job_outcomes', 'leases', 'live_jobs', 'prune_walks'];
/**
 * Each row is read, locked, and deleted with its job and its lease. The rest is for the walk's own row and
 * the plans.
 */
const touchedMax = 6 * sliceRows;

onEveryEngine((kind) => {
  describe('a slice of the pruner', () => {
    const kept = kind.name === 'embedded' ? 10_000 : 50_000;
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    async function ended(): Promise<string> {
      await submitted(engine, {});
      const grant = await acquired(engine);
      await engine.leases.release(releaseFor(grant), caller);
      return grant.job.jobId;
    }

    /** Runs a slice of every walk, and rolls it back. */
    async function staysBounded(when: string): Promise<void> {
      await pendingWalks(store.database, walks);
      await wakeWalks(store.database, walks);
      const touched = await rowsTouched(
        store.database,
        async (sql: Sql) => {
          await sql.query('savepoint before', []);
          for (const walk of walks) await pruneSlice(sql, walk, 30);
          await sql.query('rollback to savepoint before', []);
        },
        tables,
      );
      expect(touched, `rows touched ${when}`).to.be.below(touchedMax);
    }

    /** Expects every walk to read nothing, because no row can be old enough. */
    async function looksAtNothing(): Promise<void> {
      await wakeWalks(store.database, walks);
      for (const walk of walks)
        expect(await pruneSlice(store.database, walk, 30)).to.deep.equal({
          over: true,
          checked: 0,
          pruned: 0,
        });
    }

    it('touches few rows, whatever is kept or deleted and whatever the statistics say', async function () {
      this.timeout(120_000);
      const { database } = store;
      await database.query('analyze', []);
      await staysBounded('with nothing there');
      await ended();
      await multiplyEnded(database, kept);
      await staysBounded('with much that is kept');
      await looksAtNothing();
      // One job that ended late, and one that may be deleted; the oldest come first.
      const late = await ended();
      const gone = await ended();
      const [old = ''] = await letJobsAge(database, [late], 40);
      await letEndsAge(database, [old], -39);
      await letJobsAge(database, [gone], 35);
      await staysBounded('with little that may go');
      await database.query('analyze', []);
      await staysBounded('after an ANALYZE');
      const young =
        (await database.query<{ n: number }>('select count(*)::int as n from jobs', []))[0]?.n ?? 0;
      expect(await engine.services.pruner.runOnce()).to.equal(1);
      await letJobsAge(database, [await ended()], 50);
      await letJobsAge(database, await idsOf(2_000), 45);
      await staysBounded('with much that may go');
      expect(await engine.services.pruner.runOnce()).to.equal(2_001);
      await staysBounded('after much has gone');
      const [left] = await database.query<{ n: number }>('select count(*)::int as n from jobs', []);
      expect(left?.n).to.equal(young - 2_001);
    });

    const idsOf = async (count: number) => {
      const rows = await store.database.query<{ id: string }>(
        "select job_id as id from job_outcomes where finished_at > now() - interval '1 day' order by job_id limit $1",
        [count],
      );
      return rows.map(({ id }) => id);
    };
  });
});

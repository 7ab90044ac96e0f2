/**
 * The guarantee: steps of paths exist exactly as long as a lane needs them. A claim stays fast after
 * thousands of sets of requirements, and no job is lost while steps are removed and created again.
 */
import { expect } from 'chai';
import type { SubmitJob } from '../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { LaneSweeper } from '../../../src/engine/queue/lane-sweeper.ts';
import type { TransactionSql } from '../../../src/store/connection/sql.ts';
import { lockCandidates } from '../../../src/store/sql/queue/candidates.ts';
import { ownLanesMax } from '../../../src/store/sql/queue/crowds.ts';
import { firstWindow, noMarks } from '../../../src/store/sql/queue/heads.ts';
import { sweepPaths } from '../../../src/store/sql/queue/sweep-paths.ts';
import { rouseSweeps, sweepSlice } from '../../../src/store/sql/queue/sweep-walks.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  anyJob,
  caller,
  engineOn,
  engineSettings,
  silentLog,
  submittedIds,
  type TestedEngine,
} from '../../support/jobs.ts';
import { acquired, releaseFor } from '../../support/lease-helpers.ts';
import { rowsTouched } from '../../support/rows-touched.ts';

const settings = { ...engineSettings, capacityTotal: 10_000 };
const plain = { addon_id: 'a', job_type: 't', cost_units: 1 };
const names = Array.from('abcdefghi');
/** All non-empty subsets of the names. */
const sets = Array.from({ length: 2 ** names.length - 1 }, (_, i) =>
  names.filter((_, bit) => (i + 1) & (1 << bit)),
);

const requiring = (set: readonly string[]): SubmitJob => ({
  ...plain,
  constraints: Object.fromEntries(set.map((name) => [`${name}_required`, true])),
});
const capabilities = Object.fromEntries(names.map((name) => [`${name}_available`, true]));

onEveryEngine((kind) => {
  describe('paths to sets of requirements (A5)', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database, settings);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    const submit = (commands: readonly SubmitJob[]) =>
      submittedIds(
        engine,
        commands.map((command) => draft(command, false, settings)),
      );
    /** Makes every further new lane a crowded one. */
    const fillOwnLanes = () =>
      submit(
        Array.from({ length: ownLanesMax }, (_, i) => ({
          ...plain,
          job_type: `filler ${i}`,
          priority: 'LOW',
        })),
      );
    const finishAll = async () => {
      for (const table of ['live_jobs', 'stat_tallies'])
        await store.database.query(`delete from ${table}`, []);
    };
    const sweep = (pathsKeptMax = 0) =>
      new LaneSweeper({ database: store.database, log: silentLog, keptMax: 0, pathsKeptMax }).runOnce();
    const count = async (table = 'requirement_paths') => {
      const [row] = await store.database.query<{ n: number }>(`select count(*)::int as n from ${table}`, []);
      return row?.n;
    };
    /** Steps that lead to no lane, in paths of seven. */
    const leave = (steps: number) =>
      store.database.query(
        `insert into requirement_paths (parent_id, name_key, path_id)
        select hashint8extended(8 * path + step - 1, 0), step, hashint8extended(8 * path + step, 0)
        from generate_series(1, $1::int / 7) as path, generate_series(1, 7) as step`,
        [steps],
      );
    const touched = () =>
      rowsTouched(
        store.database,
        (sql) =>
          lockCandidates(
            sql,
            { ...anyJob, available: names },
            { count: 1, unique: true, window: firstWindow(noMarks) },
          ),
        ['lanes', 'live_jobs', 'requirement_paths'],
      );
    const claimed = async () =>
      (
        await engine.jobs.claim(
          { worker_id: 'w', limit: 500, constraints_capabilities: capabilities },
          caller,
        )
      ).map(({ jobId }) => jobId);

    it('removes paths with their lanes, and claims with all capabilities touch few rows', async function () {
      this.timeout(60_000);
      await fillOwnLanes();
      await submit(sets.map(requiring));
      await finishAll();
      expect(await touched()).to.be.above(sets.length);
      expect(await sweep()).to.equal(ownLanesMax + sets.length);
      expect(await count()).to.equal(0);
      expect(await touched()).to.be.below(10);
    });

    it('removes paths also when there are too few lanes for a sweep of their own', async function () {
      this.timeout(60_000);
      await fillOwnLanes();
      await submit(sets.map(requiring));
      await finishAll();
      const usual = new LaneSweeper({ database: store.database, log: silentLog });
      expect(await usual.runOnce()).to.equal(ownLanesMax + sets.length);
      expect(await count()).to.equal(0);
    });

    it('keeps paths while they are few', async () => {
      await fillOwnLanes();
      await submit(sets.slice(0, 20).map(requiring));
      await finishAll();
      const kept = (await count()) ?? 0;
      expect(await sweep(kept)).to.equal(ownLanesMax + 20);
      expect(await count()).to.equal(kept);
    });

    it('keeps all steps to a waiting, claimed or delayed job', async () => {
      await fillOwnLanes();
      await finishAll();
      const [first] = await submit([requiring(['a', 'b', 'c', 'd'])]);
      expect(await claimed()).to.deep.equal([first]);
      const ids = await submit([
        requiring(['b', 'd']),
        { ...requiring(['c', 'd', 'e']), run_at: '2999-01-01T00:00:00Z' },
        requiring(names),
        ...sets.slice(0, 100).map(requiring),
      ]);
      // Only the lanes of the last hundred are left.
      await store.database.query('delete from live_jobs where job_id = any ($1::uuid[])', [ids.slice(3)]);
      await store.database.query('delete from stat_tallies', []);
      await sweep();
      // Eight of the nine names count, and the first four steps to them are those of the first job.
      expect(await count()).to.equal(4 + 2 + 3 + 4);
      expect(await claimed()).to.deep.equal([ids[0], ids[2]]);
      await store.database.query('update live_jobs set check_at = null, state = 0, claimed_by = null', []);
      expect((await claimed()).sort()).to.deep.equal([first, ...ids.slice(0, 3)].sort());
    });

    it('creates no paths for lanes that claims read one by one', async () => {
      await submit(sets.slice(0, ownLanesMax).map(requiring));
      expect(await count()).to.equal(0);
      expect(await claimed()).to.have.length(ownLanesMax);
    });

    it('creates paths again for a server that remembers the lane at their end', async () => {
      for (let round = 0; round < 2; round++) {
        await fillOwnLanes();
        const ids = await submit([requiring(['a', 'b'])]);
        expect(await claimed()).to.include.members(ids);
        await finishAll();
        await sweep();
        expect([await count(), await count('lanes')]).to.deep.equal([0, 0]);
      }
    });

    it('creates paths again when a job is retried whose lane was removed', async () => {
      await fillOwnLanes();
      await finishAll();
      await submit([requiring(['a', 'b'])]);
      const grant = await acquired(engine, 'w', { constraints_capabilities: capabilities });
      await engine.leases.release({ ...releaseFor(grant), status: 'FAILED' }, caller);
      await finishAll();
      await sweep();
      expect(await count()).to.equal(0);
      await fillOwnLanes();
      await engine.jobs.retry(grant.job.jobId, {}, caller);
      expect((await claimed())[0]).to.equal(grant.job.jobId);
    });

    it("examines a slice at a time, whatever the planner's statistics say", async function () {
      this.timeout(60_000);
      const touchedBySlice = async () => {
        await rouseSweeps(store.database);
        const slice = async (sql: TransactionSql) => {
          await sql.query('savepoint before', []);
          const { removed } = (await sweepPaths(sql, 0)) ?? {};
          await sql.query('rollback to savepoint before', []);
          return removed;
        };
        return rowsTouched(store.database, (sql) => slice(sql as TransactionSql), [
          'lanes',
          'requirement_paths',
        ]);
      };
      await store.database.query('analyze', []);
      await fillOwnLanes();
      await submit(
        Array.from({ length: 3 * sweepSlice }, (_, i) => ({ ...requiring(['a']), job_type: `t${i}` })),
      );
      await leave(3 * sweepSlice);
      expect(await touchedBySlice(), 'after an ANALYZE of empty tables').to.be.below(5 * sweepSlice);
      await store.database.query('analyze', []);
      expect(await touchedBySlice(), 'after an ANALYZE').to.be.below(5 * sweepSlice);
    });

    it('removes paths that an earlier version left, slice by slice, whatever their length', async () => {
      await leave(5_000);
      expect(await count()).to.be.above(2 * sweepSlice);
      await fillOwnLanes();
      const ids = await submit([requiring(['a', 'b'])]);
      await sweep();
      expect(await count()).to.equal(2);
      expect((await claimed())[0]).to.equal(ids[0]);
    });
  });
});

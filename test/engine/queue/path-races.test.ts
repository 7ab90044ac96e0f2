/**
 * The guarantee: no job is lost whose path is removed while its lane is created, in any order of two servers.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { DomainError } from '../../../src/domain/errors.ts';
import type { SubmitJob } from '../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { LaneSweeper } from '../../../src/engine/queue/lane-sweeper.ts';
import { ownLanesMax } from '../../../src/store/sql/queue/crowds.ts';
import { keepLanes, laneKey, makeLanes } from '../../../src/store/sql/queue/lanes.ts';
import { sweepPaths } from '../../../src/store/sql/queue/sweep-paths.ts';
import { rouseSweeps, sweepSlice } from '../../../src/store/sql/queue/sweep-walks.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  caller,
  engineOn,
  engineSettings,
  silentLog,
  submittedIds,
  type TestedEngine,
} from '../../support/jobs.ts';

const settings = { ...engineSettings, capacityTotal: 10_000 };
const names = Array.from('abcdefgh');
const sets = Array.from({ length: 2 ** names.length - 1 }, (_, i) =>
  names.filter((_, bit) => (i + 1) & (1 << bit)),
);
const draftOf = (set: readonly string[], more: Partial<SubmitJob> = {}) =>
  draft(
    {
      addon_id: 'a',
      job_type: 't',
      cost_units: 1,
      constraints: Object.fromEntries(set.map((name) => [`${name}_required`, true])),
      ...more,
    },
    false,
    settings,
  );
const constraints_capabilities = Object.fromEntries(names.map((name) => [`${name}_available`, true]));

onEveryEngine((kind) => {
  if (kind.name !== 'postgresql') return;
  describe('the removal of paths beside submissions (A5)', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let writer: pg.Client;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database, settings);
      writer = new pg.Client({ connectionString: store.options.url });
      await writer.connect();
    });
    afterEach(async () => {
      await writer.end();
      await engine.stop();
      await store.close();
    });

    const run = (text: string) => store.database.query(text, []);
    const sweep = async () => {
      await rouseSweeps(store.database);
      return (await store.database.transaction((sql) => sweepPaths(sql, 0)))?.removed;
    };
    const steps = async () => (await run('select from requirement_paths')).length;
    const until = async (condition: () => Promise<boolean>): Promise<void> => {
      for (const end = Date.now() + 10_000; !(await condition()); )
        if (Date.now() > end) throw new Error('what was waited for did not come');
    };
    const someoneWaits = async (): Promise<boolean> => {
      const { rows } = await writer.query(
        "select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      );
      return rows[0].n > 0;
    };
    const claimed = async () =>
      (await engine.jobs.claim({ worker_id: 'w', limit: 500, constraints_capabilities }, caller)).map(
        ({ jobId }) => jobId,
      );

    /** Leaves a step to a set without lanes. All further lanes are crowded. */
    const leaveStep = async () => {
      const fillers = Array.from({ length: ownLanesMax }, (_, i) => draftOf([], { job_type: `filler ${i}` }));
      for (const drafts of [fillers, [draftOf(['a'])]]) await submittedIds(engine, drafts);
      await run('delete from live_jobs');
      await run("delete from lanes where requires = '{a}'");
      expect(await steps()).to.equal(1);
      return draftOf(['a']);
    };

    it('makes a submission wait for a removal before its delete, and creates the step anew', async () => {
      const one = await leaveStep();
      await writer.query('begin');
      await writer.query('select from requirement_paths for update');
      const submission = submittedIds(engine, [one]);
      await until(someoneWaits);
      // The removal found no lane, because its scan began before this one was created.
      await writer.query('delete from requirement_paths');
      await writer.query('commit');
      expect(await claimed()).to.deep.equal(await submission);
    });

    it('makes a submission wait for an uncommitted removal, and creates the step anew', async () => {
      const one = await leaveStep();
      const entered = Promise.withResolvers<void>();
      const goOn = Promise.withResolvers<void>();
      const removal = store.database.transaction(async (sql) => {
        const slice = await sweepPaths(sql, 0);
        entered.resolve();
        await goOn.promise;
        return slice;
      });
      await entered.promise;
      const submission = submittedIds(engine, [one]);
      await until(someoneWaits);
      goOn.resolve();
      expect((await removal)?.removed).to.equal(1);
      const ids = await submission;
      expect(await claimed()).to.deep.equal(ids);
    });

    it('creates a step anew that is removed while a submission waits to create its lane', async () => {
      const one = await leaveStep();
      // Another server creates the same lane, and will roll back.
      await writer.query('begin');
      await writer.query(
        `insert into lanes (lane_key, stream, addon_id, job_type, requires, heavy, is_unique)
        values ($1, '', 'a', 't', '{a}', '{}', false)`,
        [laneKey(one.lane)],
      );
      const submission = submittedIds(engine, [one]);
      await until(someoneWaits);
      expect(await sweep()).to.equal(1);
      await writer.query('rollback');
      const ids = await submission;
      expect(await claimed()).to.deep.equal(ids);
    });

    it('keeps a step to a lane that a transaction is creating', async () => {
      const { lane } = await leaveStep();
      const lanes = new Map([[laneKey(lane), lane]]);
      await store.database.transaction(async (sql) => {
        expect((await keepLanes(sql, lanes)).size).to.equal(1);
        expect(await sweep()).to.equal(0);
      });
      expect(await sweep()).to.equal(0);
      expect(await steps()).to.equal(1);
    });

    it('keeps a step that another step begins to follow', async () => {
      const { lane } = await leaveStep();
      const longer = { ...lane, requires: ['a', 'b'] };
      await store.database.transaction(async (sql) => {
        await keepLanes(sql, new Map([[laneKey(longer), longer]]));
        expect(await sweep()).to.equal(0);
      });
      expect(await sweep()).to.equal(0);
      expect(await steps()).to.equal(2);
    });

    it('keeps a step to a lane that is created during the removal', async () => {
      const { lane } = await leaveStep();
      const lanes = new Map([[laneKey(lane), lane]]);
      // Steps that follow themselves are never removed, and every sweep examines them.
      await run(`insert into requirement_paths (parent_id, name_key, path_id)
        select n, n, n from generate_series(1, ${sweepSlice - 10}) as n`);
      for (let round = 0; round < 150; round++) {
        await rouseSweeps(store.database);
        const removal = store.database.transaction((sql) => sweepPaths(sql, 0));
        // Each round creates the lane at another moment of the removal.
        for (let n = 0; n < round % 10; n++) await run('select 1');
        await makeLanes(store.database, lanes);
        await removal;
        expect(await steps(), `round ${round}`).to.equal(sweepSlice - 9);
        await run("delete from lanes where requires = '{a}'");
      }
    });

    it('loses no job of two servers while the paths of their requirements are removed', async function () {
      this.timeout(120_000);
      const other = engineOn(store.database, settings);
      const sweeper = new LaneSweeper({
        database: store.database,
        log: silentLog,
        keptMax: 0,
        pathsKeptMax: 0,
      });
      const taken = new Set<string>();
      const sent = new Set<string>();
      let busy = true;
      let removed = 0;
      const takeAll = async (): Promise<void> => {
        for (;;) {
          const ids = await claimed();
          for (const id of ids) taken.add(id);
          if (ids.length === 0) return;
        }
      };
      const submitting = [engine, other].map(async (server, n) => {
        for (let i = 0; i < 50 || (removed < 300 && i < 2_000); i++) {
          // Claims must keep up with the submitters, or no lane becomes idle.
          for (let waits = 0; sent.size - taken.size > 200 && waits < 200; waits++) await delay(5);
          // Enough sets for many of them to be crowded. The two servers have most of them in common.
          const drafts = Array.from({ length: 90 }, (_, j) =>
            draftOf(sets[(i * 37 + n * 5 + j * 3) % sets.length] ?? []),
          );
          for (const answer of await server.jobs.submitMany(drafts, caller)) {
            // A submission whose lanes are removed three times in a row is refused, and its jobs are not
            // written.
            if (answer instanceof DomainError && answer.code === 'unavailable') continue;
            if (answer instanceof Error) throw answer;
            sent.add(answer.jobId);
          }
        }
      });
      const sweeping = (async () => {
        while (busy) {
          await takeAll();
          await run('delete from live_jobs where state = 1');
          await run('delete from stat_tallies');
          const before = await steps();
          await sweeper.runOnce();
          removed += Math.max(0, before - (await steps()));
        }
      })();
      await Promise.all(submitting).finally(() => {
        busy = false;
      });
      await sweeping;
      await takeAll();
      await other.stop();
      expect([...sent].filter((id) => !taken.has(id))).to.deep.equal([]);
      expect(removed).to.be.above(100);
    });
  });
});

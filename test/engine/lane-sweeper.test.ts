/**
 * The guarantees: idle lanes are removed, and no job is lost for that, whatever is submitted or retried meanwhile; a stream stays
 * listed while a job of it is kept.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import type { SubmitJob } from '../../src/domain/commands.ts';
import { DomainError } from '../../src/domain/errors.ts';
import type { Engine } from '../../src/engine/engine.ts';
import { LaneSweeper } from '../../src/engine/lane-sweeper.ts';
import { draft } from '../../src/engine/submit.ts';
import { ownLanesMax } from '../../src/store/statements/crowds.ts';
import { auditTotals } from '../../src/store/statements/stat-audit.ts';
import { rouseSweep, sweepLanes } from '../../src/store/statements/sweep-lanes.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';
import { caller, engineOn, engineSettings, silentLog, submitted } from '../support/jobs.ts';
import { acquired, releaseFor } from './leasing.ts';

const settings = { ...engineSettings, capacityTotal: 10_000 };

describe('the removal of idle lanes (A5)', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: Engine;
    let sweeper: LaneSweeper;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database, settings);
      sweeper = new LaneSweeper({ database: store.database, log: silentLog, keptMax: 0 });
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    const lanes = async (): Promise<string[]> => {
      const rows = await store.database.query<{ job_type: string }>(
        'select job_type from lanes order by lane_id',
        [],
      );
      return rows.map(({ job_type }) => job_type);
    };
    const fold = () => engine.statsFolder.runOnce();
    const submitMany = (count: number, make: (i: number) => Partial<SubmitJob>) =>
      submitted(engine, ...Array.from({ length: count }, (_, i) => make(i)));

    it('removes lanes whose jobs have all ended, and keeps those with a job in any other state', async () => {
      await submitted(engine, { job_type: 'ends' });
      const done = await acquired(engine, 'w');
      await engine.releaser.release(releaseFor(done), caller);
      await submitted(engine, { job_type: 'runs' });
      await acquired(engine, 'w');
      await submitted(engine, { job_type: 'claimed' });
      await engine.claimer.claim({ worker_id: 'w' }, caller);
      await submitted(
        engine,
        { job_type: 'waits' },
        { job_type: 'delayed', run_at: '2999-01-01T00:00:00Z' },
        { job_type: 'too large', cost_units: 20_000 },
      );
      await fold();
      expect(await sweeper.runOnce()).to.equal(1);
      expect(await lanes()).to.deep.equal(['runs', 'claimed', 'waits', 'delayed', 'too large']);
    });

    it('keeps a lane whose figures are not yet added up', async () => {
      await submitted(engine, {});
      await engine.releaser.release(releaseFor(await acquired(engine, 'w')), caller);
      expect(await sweeper.runOnce()).to.equal(0);
      await fold();
      expect(await sweeper.runOnce()).to.equal(1);
    });

    it('removes a thousand idle lanes slice by slice, and leaves a usual number of lanes alone', async function () {
      this.timeout(60_000);
      const drafts = Array.from({ length: 1_050 }, (_, i) =>
        draft({ addon_id: 'a', job_type: `t${i}`, cost_units: 1 }, false, settings),
      );
      await engine.submitter.submitMany(drafts, caller);
      await store.database.query('delete from live_jobs', []);
      await fold();
      await store.database.query('delete from stat_tallies', []);
      const usual = new LaneSweeper({ database: store.database, log: silentLog, keptMax: 1_050 });
      expect(await usual.runOnce()).to.equal(0);
      expect(await sweeper.runOnce()).to.equal(1_050);
      expect(await lanes()).to.deep.equal([]);
    });

    it('lets a server that remembers a removed lane submit into it again', async () => {
      for (const crowded of [false, true]) {
        if (crowded) await submitMany(ownLanesMax + 1, (i) => ({ job_type: `filler${i}` }));
        await submitted(engine, { job_type: 'again' });
        for (;;) {
          const [job] = await engine.claimer.claim({ worker_id: 'w', limit: 500 }, caller);
          if (!job) break;
        }
        await store.database.query('delete from live_jobs where state <> 0', []);
        await fold();
        await sweeper.runOnce();
        expect(await lanes()).to.deep.equal([]);
        if (crowded) await submitMany(ownLanesMax + 1, (i) => ({ job_type: `other${i}`, priority: 'LOW' }));
        const [job] = await submitted(engine, { job_type: 'again' });
        const [claimed] = await engine.claimer.claim({ worker_id: 'w' }, caller);
        expect(claimed?.jobId).to.equal(job?.jobId);
      }
    });

    it('lets a job be retried whose lane was removed, be it to a lane of its own or to a crowded one', async () => {
      for (const crowded of [false, true]) {
        await submitted(engine, { job_type: 'fails', constraints: { gpu_required: true } });
        const grant = await acquired(engine, 'w', { constraints_capabilities: { gpu_available: true } });
        await engine.releaser.release({ ...releaseFor(grant), status: 'FAILED' }, caller);
        await fold();
        await sweeper.runOnce();
        expect(await lanes()).not.to.include('fails');
        if (crowded) await submitMany(ownLanesMax + 1, (i) => ({ job_type: `filler${i}` }));
        const job = await engine.changer.retry(grant.job.jobId, {}, caller);
        expect(job.state).to.equal('QUEUED');
        const again = await acquired(engine, 'w', {
          accept_job_types: ['fails'],
          constraints_capabilities: { gpu_available: true },
        });
        expect(again.job.jobId).to.equal(grant.job.jobId);
        await engine.releaser.release(releaseFor(again), caller);
      }
    });

    it('retries a job of an earlier version whose constraints would be refused now, after its lane was removed', async () => {
      await submitted(engine, { job_type: 'fails' });
      const grant = await acquired(engine, 'w');
      await engine.releaser.release({ ...releaseFor(grant), status: 'FAILED' }, caller);
      await store.database.query(
        `update jobs set constraints = '{"region": "eu", "gpu_required": true}'`,
        [],
      );
      await fold();
      expect(await sweeper.runOnce()).to.equal(1);
      await engine.changer.retry(grant.job.jobId, {}, caller);
      const again = await acquired(engine, 'w', { constraints_capabilities: { gpu_available: true } });
      expect(again.job.jobId).to.equal(grant.job.jobId);
    });

    it('keeps a stream listed whose lanes are gone, for as long as a job of it may be kept', async () => {
      await submitted(engine, { stream: 's' }, { stream: 't' });
      for (const stream of ['s', 't'])
        await engine.releaser.release(releaseFor(await acquired(engine, 'w', { streams: [stream] })), caller);
      await fold();
      expect(await sweeper.runOnce()).to.equal(2);
      const listed = async () => (await engine.reader.streams({}, caller)).items.map(({ stream }) => stream);
      expect(await listed()).to.deep.equal(['s', 't']);
      expect((await engine.reader.streams({ stream: 's' }, caller)).items).to.deep.equal([
        { stream: 's', queued: 0, delayed: 0, running: 0, deadLettered: 0 },
      ]);
      await engine.pruner.runOnce();
      expect(await listed()).to.deep.equal(['s', 't']);
      await store.database.query(
        "update idle_streams set idle_since = now() - interval '31 days' where stream = 's'",
        [],
      );
      await engine.pruner.runOnce();
      expect(await listed()).to.deep.equal(['t']);
      await submitted(engine, { stream: 's' });
      expect(await listed()).to.deep.equal(['s', 't']);
    });

    it('lets totals be corrected of a submitter that has no lane any more', async () => {
      await submitted(engine, { addon_id: 'gone' });
      await engine.releaser.release(releaseFor(await acquired(engine, 'w')), caller);
      await fold();
      await sweeper.runOnce();
      await store.database.query(
        "update stat_totals set queued = queued + 7 where addon_id in ('gone', '')",
        [],
      );
      const audit = () => store.database.transaction((sql) => auditTotals(sql));
      expect((await audit()).shortfalls.map(({ addonId, queued }) => [addonId, queued])).to.deep.equal([
        ['gone', -7],
      ]);
      expect(await audit()).to.deep.equal({ shortfalls: [], wasTotalWrong: true });
      expect(await audit()).to.deep.equal({ shortfalls: [], wasTotalWrong: false });
    });
  });
});

onEveryEngine((kind) => {
  if (kind.name !== 'postgresql') return;
  describe('the removal of a lane beside a submission into it (A5)', () => {
    let store: TestDatabase;
    let engine: Engine;
    let writer: pg.Client;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database, settings);
      writer = new pg.Client({ connectionString: store.options.url });
      await writer.connect();
      await submitted(engine, {});
      await engine.releaser.release(releaseFor(await acquired(engine, 'w')), caller);
      await engine.statsFolder.runOnce();
    });
    afterEach(async () => {
      await writer.end();
      await engine.stop();
      await store.close();
    });

    const blocked = async (): Promise<number> => {
      const { rows } = await writer.query(
        "select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      );
      return rows[0].n;
    };
    const until = async (condition: () => Promise<boolean>): Promise<void> => {
      for (const end = Date.now() + 10_000; !(await condition()); )
        if (Date.now() > end) throw new Error('what was waited for did not come');
    };

    it('makes a submission wait that meets the removal, and then writes its job into a new lane', async () => {
      // The sweep has locked the lane and found it idle, and has not yet committed.
      const entered = Promise.withResolvers<void>();
      const goOn = Promise.withResolvers<void>();
      const sweep = store.database.transaction(async (sql) => {
        const slice = await sweepLanes(sql, 0);
        entered.resolve();
        await goOn.promise;
        return slice;
      });
      await entered.promise;
      const submission = submitted(engine, {});
      await until(async () => (await blocked()) > 0);
      goOn.resolve();
      expect((await sweep)?.removed).to.equal(1);
      const [job] = await submission;
      const [claimed] = await engine.claimer.claim({ worker_id: 'w' }, caller);
      expect(claimed?.jobId).to.equal(job?.jobId);
    });

    it('keeps a lane into which a transaction is writing a job', async () => {
      // Another server's submission, whose commit is still to come.
      await writer.query('begin');
      await writer.query('select lane_id from lanes for key share');
      await writer.query(
        `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, attempts, attempts_limit,
          claims_lost, cancel_requested, updated_at)
        select gen_random_uuid(), lane_id, 1, 2, 1, 0, 0, 0, 1, 0, false, now() from lanes`,
      );
      await rouseSweep(store.database);
      expect((await store.database.transaction((sql) => sweepLanes(sql, 0)))?.removed).to.equal(0);
      await writer.query('commit');
      await rouseSweep(store.database);
      expect((await store.database.transaction((sql) => sweepLanes(sql, 0)))?.removed).to.equal(0);
    });

    it('loses no job of two servers that submit into lanes which are removed all the while', async function () {
      this.timeout(60_000);
      const other = engineOn(store.database, settings);
      const sweeper = new LaneSweeper({ database: store.database, log: silentLog, keptMax: 0 });
      const taken = new Set<string>();
      const sent = new Set<string>();
      let removed = 0;
      let busy = true;
      const takeAll = async (): Promise<void> => {
        for (;;) {
          const jobs = await engine.claimer.claim({ worker_id: 'w', limit: 100 }, caller);
          for (const { jobId } of jobs) taken.add(jobId);
          if (jobs.length < 100) return;
        }
      };
      const submitting = [engine, other].map(async (server, n) => {
        for (let i = 0; i < 150 || (removed < 30 && i < 3_000); i++) {
          // Claims must catch up with the submitters, or no lane ever becomes idle.
          for (let waits = 0; sent.size - taken.size > 20 && waits < 200; waits++) await delay(5);
          const types =
            i % 10 === 0 ? Array.from({ length: 80 }, (_, j) => `t${j}`) : [`t${i % 7}`, `t${60 + n}`];
          const drafts = types.map((job_type) =>
            draft({ addon_id: 'a', job_type, cost_units: 1 }, false, settings),
          );
          for (const answer of await server.submitter.submitMany(drafts, caller)) {
            // A submission whose lanes are removed three times in a row is refused; its jobs were not written.
            if (answer instanceof DomainError && answer.code === 'unavailable') continue;
            if (answer instanceof Error) throw answer;
            sent.add(answer.jobId);
          }
        }
      });
      const sweeping = (async () => {
        while (busy) {
          await takeAll();
          await store.database.query('delete from live_jobs where state = 1', []);
          await store.database.query('delete from stat_tallies', []);
          removed += await sweeper.runOnce();
        }
      })();
      await Promise.all(submitting).finally(() => {
        busy = false;
      });
      await sweeping;
      await takeAll();
      await other.stop();
      expect([...sent].filter((jobId) => !taken.has(jobId))).to.deep.equal([]);
      expect(removed).to.be.above(0);
    });
  });
});

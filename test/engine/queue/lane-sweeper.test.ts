/**
 * The guarantees: idle lanes are removed without losing a job, whatever clients submit or retry meanwhile. A
 * stream stays listed while a job of it is kept.
 */
import { expect } from 'chai';
import type { SubmitJob } from '../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { LaneSweeper } from '../../../src/engine/queue/lane-sweeper.ts';
import type { TransactionSql } from '../../../src/store/connection/sql.ts';
import { ownLanesMax } from '../../../src/store/sql/queue/crowds.ts';
import { sweepLanes } from '../../../src/store/sql/queue/sweep-lanes.ts';
import { rouseSweeps } from '../../../src/store/sql/queue/sweep-walks.ts';
import { auditTotals } from '../../../src/store/sql/stats/audit.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  caller,
  engineOn,
  engineSettings,
  silentLog,
  submitted,
  submittedIds,
  type TestedEngine,
} from '../../support/jobs.ts';
import { acquired, Holder, releaseFor } from '../../support/lease-helpers.ts';
import { rowsTouched } from '../../support/rows-touched.ts';

const settings = { ...engineSettings, capacityTotal: 10_000 };

describe('LaneSweeper (A5)', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
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
    const fold = () => engine.services.statsAggregator.runOnce();
    const submitMany = (count: number, make: (i: number) => Partial<SubmitJob>) =>
      submitted(engine, ...Array.from({ length: count }, (_, i) => make(i)));

    it('removes lanes whose jobs have all ended, and keeps those with any other job', async () => {
      await submitted(engine, { job_type: 'ends' });
      const done = await acquired(engine, 'w');
      await engine.leases.release(releaseFor(done), caller);
      await submitted(engine, { job_type: 'runs' });
      await acquired(engine, 'w');
      await submitted(engine, { job_type: 'claimed' });
      await engine.jobs.claim({ worker_id: 'w' }, caller);
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

    it('keeps a lane whose statistics are not yet aggregated', async () => {
      await submitted(engine, {});
      await engine.leases.release(releaseFor(await acquired(engine, 'w')), caller);
      expect(await sweeper.runOnce()).to.equal(0);
      await fold();
      expect(await sweeper.runOnce()).to.equal(1);
    });

    it('removes a thousand idle lanes in slices, and none below the usual number', async function () {
      this.timeout(60_000);
      const drafts = Array.from({ length: 1_050 }, (_, i) =>
        draft({ addon_id: 'a', job_type: `t${i}`, cost_units: 1 }, false, settings),
      );
      await engine.jobs.submitMany(drafts, caller);
      await store.database.query('delete from live_jobs', []);
      await fold();
      await store.database.query('delete from stat_tallies', []);
      const usual = new LaneSweeper({ database: store.database, log: silentLog, keptMax: 1_050 });
      expect(await usual.runOnce()).to.equal(0);
      expect(await sweeper.runOnce()).to.equal(1_050);
      expect(await lanes()).to.deep.equal([]);
    });

    it('touches few rows per slice when the queue is long and statistics call it empty', async function () {
      this.timeout(60_000);
      await store.database.query('analyze', []);
      await submitMany(20, (i) => ({ job_type: `t${i}` }));
      await store.database.query(
        `insert into live_jobs (job_id, seq, lane_id, priority, cost_units, bytes, state, attempts, attempts_limit,
          claims_lost, cancel_requested, updated_at, ready_at)
        select gen_random_uuid(), n, first.lane_id, 2, 1, 1, 0, 0, 1, 0, false, now(), now()
        from (select min(lane_id) as lane_id from lanes) first, generate_series(1, 20000) as n`,
        [],
      );
      await store.database.query(
        'delete from live_jobs where lane_id > (select min(lane_id) + 9 from lanes)',
        [],
      );
      await fold();
      await store.database.query('delete from stat_tallies', []);
      let removed: number | undefined;
      const touched = await rowsTouched(
        store.database,
        async (sql) => {
          removed = (await sweepLanes(sql as TransactionSql, 0))?.removed;
        },
        ['live_jobs', 'lanes'],
      );
      expect(removed).to.equal(10);
      expect(touched).to.be.below(100);
    });

    it('accepts submissions from a server that remembers a removed lane', async () => {
      for (const crowded of [false, true]) {
        if (crowded) await submitMany(ownLanesMax + 1, (i) => ({ job_type: `filler${i}` }));
        await submitted(engine, { job_type: 'again' });
        for (;;) {
          const [job] = await engine.jobs.claim({ worker_id: 'w', limit: 500 }, caller);
          if (!job) break;
        }
        await store.database.query('delete from live_jobs where state <> 0', []);
        await fold();
        await sweeper.runOnce();
        expect(await lanes()).to.deep.equal([]);
        if (crowded) await submitMany(ownLanesMax + 1, (i) => ({ job_type: `other${i}`, priority: 'LOW' }));
        const [job] = await submitted(engine, { job_type: 'again' });
        const [claimed] = await engine.jobs.claim({ worker_id: 'w' }, caller);
        expect(claimed?.jobId).to.equal(job?.jobId);
      }
    });

    it('retries a job whose lane was removed, into a lane of its own or a crowded one', async () => {
      for (const crowded of [false, true]) {
        await submitted(engine, { job_type: 'fails', constraints: { gpu_required: true } });
        const grant = await acquired(engine, 'w', { constraints_capabilities: { gpu_available: true } });
        await engine.leases.release({ ...releaseFor(grant), status: 'FAILED' }, caller);
        await fold();
        await sweeper.runOnce();
        expect(await lanes()).not.to.include('fails');
        if (crowded) await submitMany(ownLanesMax + 1, (i) => ({ job_type: `filler${i}` }));
        const job = await engine.jobs.retry(grant.job.jobId, {}, caller);
        expect(job.state).to.equal('QUEUED');
        const again = await acquired(engine, 'w', {
          accept_job_types: ['fails'],
          constraints_capabilities: { gpu_available: true },
        });
        expect(again.job.jobId).to.equal(grant.job.jobId);
        await engine.leases.release(releaseFor(again), caller);
      }
    });

    it('retries a job whose constraints are no longer valid, after its lane was removed', async () => {
      await submitted(engine, { job_type: 'fails' });
      const grant = await acquired(engine, 'w');
      await engine.leases.release({ ...releaseFor(grant), status: 'FAILED' }, caller);
      await store.database.query(
        `update jobs set constraints = '{"region": "eu", "gpu_required": true}'`,
        [],
      );
      await fold();
      expect(await sweeper.runOnce()).to.equal(1);
      await engine.jobs.retry(grant.job.jobId, {}, caller);
      const again = await acquired(engine, 'w', { constraints_capabilities: { gpu_available: true } });
      expect(again.job.jobId).to.equal(grant.job.jobId);
    });

    it('lists a stream without lanes for as long as a job of it may be kept', async () => {
      await submitted(engine, { stream: 's' }, { stream: 't' });
      for (const stream of ['s', 't'])
        await engine.leases.release(releaseFor(await acquired(engine, 'w', { streams: [stream] })), caller);
      await fold();
      expect(await sweeper.runOnce()).to.equal(2);
      const listed = async () => (await engine.jobs.streams({}, caller)).items.map(({ stream }) => stream);
      expect(await listed()).to.deep.equal(['s', 't']);
      expect((await engine.jobs.streams({ stream: 's' }, caller)).items).to.deep.equal([
        { stream: 's', queued: 0, delayed: 0, running: 0, deadLettered: 0 },
      ]);
      await engine.services.pruner.runOnce();
      expect(await listed()).to.deep.equal(['s', 't']);
      await store.database.query(
        "update idle_streams set idle_since = now() - interval '31 days' where stream = 's'",
        [],
      );
      await engine.services.pruner.runOnce();
      expect(await listed()).to.deep.equal(['t']);
      await submitted(engine, { stream: 's' });
      expect(await listed()).to.deep.equal(['s', 't']);
    });

    it('corrects the totals of a submitter that has no lane left', async () => {
      await submitted(engine, { addon_id: 'gone' });
      await engine.leases.release(releaseFor(await acquired(engine, 'w')), caller);
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
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database, settings);
      await submitted(engine, {});
      await engine.leases.release(releaseFor(await acquired(engine, 'w')), caller);
      await engine.services.statsAggregator.runOnce();
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    it('makes a submission wait for the removal, and writes its job into a new lane', async () => {
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
      const holder = await Holder.hold(store, 'select');
      const submission = submitted(engine, {});
      await holder
        .untilWaiting(1)
        .finally(goOn.resolve)
        .finally(() => holder.close());
      expect((await sweep)?.removed).to.equal(1);
      const [job] = await submission;
      const [claimed] = await engine.jobs.claim({ worker_id: 'w' }, caller);
      expect(claimed?.jobId).to.equal(job?.jobId);
    });

    it('keeps a lane into which a transaction is writing a job', async () => {
      // A submission of another server, before its commit.
      const writer = await Holder.hold(store, 'select lane_id from lanes for key share');
      await writer.query(
        `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, attempts, attempts_limit,
          claims_lost, cancel_requested, updated_at)
        select gen_random_uuid(), lane_id, 1, 2, 1, 0, 0, 0, 1, 0, false, now() from lanes`,
      );
      await rouseSweeps(store.database);
      expect((await store.database.transaction((sql) => sweepLanes(sql, 0)))?.removed).to.equal(0);
      await writer.letGo();
      await rouseSweeps(store.database);
      expect((await store.database.transaction((sql) => sweepLanes(sql, 0)))?.removed).to.equal(0);
    });

    it('loses and refuses no job of two servers whose lanes are removed while they submit', async function () {
      this.timeout(60_000);
      const steps = 20;
      const turns = 40;
      const other = engineOn(store.database, settings);
      const sweeper = new LaneSweeper({ database: store.database, log: silentLog, keptMax: 0 });
      const sent = new Set<string>();
      const taken = new Set<string>();
      const submitTypes = async (server: TestedEngine, types: readonly string[]): Promise<void> => {
        const drafts = types.map((job_type) =>
          draft({ addon_id: 'a', job_type, cost_units: 1 }, false, settings),
        );
        for (const jobId of await submittedIds(server, drafts)) sent.add(jobId);
      };
      // Alternates with every other step, so its lanes are idle in the step between.
      const turnsOf = (step: number) => Array.from({ length: turns }, (_, i) => `turn ${step % 2} ${i}`);
      const submitStep = async (server: TestedEngine, step: number): Promise<void> => {
        await submitTypes(server, turnsOf(step));
        // These lanes were idle until now in this step. Whether the sweep runs before the job is left to
        // chance.
        for (let n = 0; n < 3; n++)
          await submitTypes(
            server,
            Array.from({ length: 7 }, (_, i) => `${n} ${i}`),
          );
      };
      const takeAll = async (): Promise<void> => {
        for (;;) {
          const jobs = await engine.jobs.claim({ worker_id: 'w', limit: 100 }, caller);
          for (const { jobId } of jobs) taken.add(jobId);
          if (jobs.length === 0) return;
        }
      };
      for (let step = 0; step < steps; step++) {
        let isBusy = true;
        const submitting = Promise.all([engine, other].map((server) => submitStep(server, step))).finally(
          () => {
            isBusy = false;
          },
        );
        const sweeping = (async () => {
          let gone = 0;
          do gone += await sweeper.runOnce();
          while (isBusy);
          return gone;
        })();
        const [gone] = await Promise.all([sweeping, submitting]);
        // The lanes of the step before last are removed in between, while both servers remember them.
        if (step > 0) expect(gone).to.be.at.least(turns);
        await takeAll();
        expect([...sent].filter((jobId) => !taken.has(jobId))).to.deep.equal([]);
        await store.database.query('delete from live_jobs', []);
        await store.database.query('delete from stat_tallies', []);
      }
      await other.stop();
    });
  });
});

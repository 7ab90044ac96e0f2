/**
 * The guarantee: ended rows are deleted after their retention and not before, completely, and rows that still
 * matter stay.
 */
import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { pendingWalks, pruneSlice, wakeWalks, walks } from '../../../src/store/sql/maintenance/prune.ts';
import { letEndsAge, letJobsAge, multiplyEnded, older } from '../../support/age.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  acquireFiles,
  beatOwner,
  contended,
  granted,
  halted,
  releaseFiles,
  wipeFiles,
} from '../../support/file-lease-helpers.ts';
import { letFilesAge, letFileTimePass } from '../../support/files.ts';
import { endedLeases } from '../../support/history.ts';
import { caller, engineOn, engineSettings, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, codeOf, releaseFor, wipe } from '../../support/lease-helpers.ts';

const dayMs = 86_400_000;

onEveryEngine((kind) => {
  describe('Pruner', () => {
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
    afterEach(async () => {
      await wipe(store.database);
      await wipeFiles(store.database);
      await store.database.query('delete from file_owners', []);
    });

    /** Submits, leases and completes a job. */
    async function ended(more = {}): Promise<{ jobId: string; leaseId: string }> {
      await submitted(engine, more);
      const grant = await acquired(engine);
      await engine.leases.release(releaseFor(grant), caller);
      return { jobId: grant.job.jobId, leaseId: grant.lease.leaseId };
    }

    const rowsOf = async (jobId: string) => {
      const [row] = await store.database.query<Record<string, number>>(
        `select (select count(*)::int from jobs where job_id = $1) as jobs,
          (select count(*)::int from job_outcomes where job_id = $1) as outcomes,
          (select count(*)::int from ${endedLeases} where job_id = $1) as leases`,
        [jobId],
      );
      return row;
    };

    for (const [moment, part, returnsExisting] of [
      ['before its first job is looked up', 'as "clientRequestId"', false],
      ['before its first job is read', 'from job_outcomes outcome cross join', true],
    ] as const) {
      it(`accepts a submission if the job of its client_request_id is deleted ${moment}`, async () => {
        const { database } = store;
        const key = { addon_id: 'a', job_type: 't', cost_units: 1, client_request_id: 'k' };
        const { jobId } = await ended(key);
        await letJobsAge(database, [jobId], 30.1);
        const { query } = database;
        let pruned = 0;
        database.query = async (text, params, signal) => {
          if (text.includes(part)) {
            database.query = query;
            pruned = await engine.services.pruner.runOnce();
          }
          return query.call(database, text, params, signal) as Promise<never>;
        };
        const { job, existing } = await engine.jobs.submit(
          draft(key, returnsExisting, engine.settings),
          caller,
        );
        expect({ pruned, existing }).to.deep.equal({ pruned: 1, existing: false });
        expect((await engine.jobs.get(job.jobId, caller)).job.state).to.equal('QUEUED');
      });
    }

    it('deletes a job with its outcome and leases after its retention, and not before', async () => {
      const { jobId, leaseId } = await ended();
      const [young = ''] = await letJobsAge(store.database, [jobId], 29.9);
      expect(await engine.services.pruner.runOnce()).to.equal(0);
      expect((await engine.jobs.get(young, caller)).result?.status).to.equal('SUCCEEDED');
      const [old = ''] = await letJobsAge(store.database, [young], 0.2);
      expect(await engine.services.pruner.runOnce()).to.equal(1);
      expect(await rowsOf(old)).to.deep.equal({ jobs: 0, outcomes: 0, leases: 0 });
      expect(await codeOf(engine.jobs.get(old, caller))).to.equal('job_not_found');
      expect(await codeOf(engine.jobs.events(old, {}, caller))).to.equal('job_not_found');
      expect(await codeOf(engine.jobs.retry(old, {}, caller))).to.equal('job_not_found');
      expect(await codeOf(engine.leases.get(leaseId, caller))).to.equal('lease_not_found');
    });

    it('measures the retention from the end of a job, not its submission', async () => {
      const { jobId } = await ended();
      const [old = ''] = await letJobsAge(store.database, [jobId], 100);
      await letEndsAge(store.database, [old], -71);
      expect(await engine.services.pruner.runOnce()).to.equal(0);
      await letEndsAge(store.database, [old], 2);
      expect(await engine.services.pruner.runOnce()).to.equal(1);
    });

    it('passes old jobs that are unfinished or ended recently, and deletes later ones', async () => {
      const [waiting] = await submitted(engine, { run_at: new Date(Date.now() + dayMs).toISOString() });
      const late = await ended();
      const over = await ended();
      const [unfinished = '', lately = '', gone = ''] = await letJobsAge(
        store.database,
        [waiting?.jobId ?? '', late.jobId, over.jobId],
        40,
      );
      await letEndsAge(store.database, [lately], -39);
      expect(await engine.services.pruner.runOnce()).to.equal(1);
      expect(await rowsOf(gone)).to.include({ jobs: 0 });
      expect(await rowsOf(lately)).to.deep.equal({ jobs: 1, outcomes: 1, leases: 1 });
      expect((await engine.jobs.get(unfinished, caller)).job.state).to.equal('QUEUED');
    });

    it('deletes slice by slice, with few rows each however many attempts jobs had', async () => {
      const { jobId } = await ended();
      await letJobsAge(store.database, [jobId], 40);
      await store.database.query('update job_outcomes set attempts = 200', []);
      await multiplyEnded(store.database, 20);
      const [jobs] = walks.filter(({ name }) => name === 'jobs');
      if (!jobs) throw new Error('there is no walk of that name');
      await pendingWalks(store.database, [jobs]);
      await wakeWalks(store.database, [jobs]);
      const first = await pruneSlice(store.database, jobs, 30);
      expect(first).to.deep.equal({ over: false, checked: 3, pruned: 3 });
      expect(await engine.services.pruner.runOnce()).to.equal(18);
      expect(await rowsOf(jobId)).to.include({ jobs: 0 });
    });

    it('frees the client_request_id of a deleted job', async () => {
      const { jobId } = await ended({ client_request_id: 'once' });
      const again = () => submitted(engine, { client_request_id: 'once' });
      expect(await codeOf(again())).to.equal('duplicate_request');
      await letJobsAge(store.database, [jobId], 31);
      await engine.services.pruner.runOnce();
      expect((await again())[0]?.jobId).to.be.a('string');
    });

    it('keeps everything while the retention is 0', async () => {
      const { jobId } = await ended();
      await letJobsAge(store.database, [jobId], 5_000);
      await granted(engine, 'ann', 'a.ts');
      await engine.files.endOwner('ann', caller);
      await letFilesAge(store.database, 5_000 * dayMs);
      const forever = { retentionJobsDays: 0, retentionSamplesDays: 0, retentionFilesDays: 0 };
      const keeping = engineOn(store.database, { ...engineSettings, ...forever });
      expect(await keeping.services.pruner.runOnce()).to.equal(0);
      await keeping.stop();
      expect(await engine.services.pruner.runOnce()).to.be.above(1);
    });

    it('deletes finished outages after their retention', async () => {
      await store.database.query(
        `insert into outages (began_at, ended_at, leases_extended, next_lease_id)
        select ended_at - interval '1 hour', ended_at, 0, next from (values
          (now() - interval '31 days', null), (now() - interval '31 days', gen_random_uuid()), (now() - interval '29 days', null)
        ) as outage (ended_at, next)`,
        [],
      );
      expect(await engine.services.pruner.runOnce()).to.equal(1);
      const left = await store.database.query('select from outages', []);
      expect(left).to.have.length(2);
    });

    it('deletes released files, their events, closed contentions and ended owners', async () => {
      await granted(engine, 'ann', 'a.ts');
      await contended(engine, 'bob', 'a.ts');
      for (const owner of ['ann', 'bob']) await engine.files.endOwner(owner, caller);
      // A contention outlives its owner, until ten minutes after its retry time.
      await letFileTimePass(store.database, 781_000);
      await engine.services.fileReaper.runOnce();
      await letFilesAge(store.database, 31 * dayMs);
      // Their ids contain the time of the denial.
      await store.database.query(`update file_contentions set contention_id = ${older('contention_id')}`, [
        31 * dayMs,
      ]);
      await granted(engine, 'eve', 'e.ts');
      await engine.services.pruner.runOnce();
      const counts = async (table: string, column: string) =>
        (await store.database.query<{ it: string }>(`select distinct ${column} as it from ${table}`, [])).map(
          ({ it }) => it,
        );
      expect(await counts('file_leases', 'path')).to.deep.equal(['e.ts']);
      expect(await counts('file_owners', 'owner_id')).to.deep.equal(['eve']);
      expect(await counts('file_events', 'owner_id')).to.deep.equal(['eve']);
      expect(await counts('file_contentions', 'owner_id')).to.deep.equal([]);
      // Returning owners start anew, also on a server that remembers them.
      expect(await granted(engine, 'ann', 'a.ts')).to.have.length(1);
      expect(await contended(engine, 'bob', 'a.ts')).to.nested.include({ 'blockers[0].ownerId': 'ann' });
    });

    it('keeps a halt of an ended owner until an operator instructs it (B2)', async () => {
      await granted(engine, 'ann', 'a.ts');
      await contended(engine, 'bob', 'a.ts');
      for (let passed = 0; passed < 4; passed++) {
        await letFileTimePass(store.database, 46_000);
        await beatOwner(engine, 'ann');
      }
      const { contentionId } = await halted(engine, 'bob', 'a.ts');
      for (const owner of ['ann', 'bob']) await engine.files.endOwner(owner, caller);
      const letMonthPass = async () => {
        await letFilesAge(store.database, 31 * dayMs);
        await store.database.query(`update file_contentions set contention_id = ${older('contention_id')}`, [
          31 * dayMs,
        ]);
        await store.database.query('update pulse set alive_at = clock_timestamp()', []);
        await engine.services.fileReaper.runOnce();
        await wakeWalks(store.database, walks);
        await engine.services.pruner.runOnce();
      };
      await letMonthPass();
      const open = async () =>
        store.database.query<{ id: string; state: number; owner_id: string }>(
          'select contention_id as id, state, owner_id from file_contentions',
          [],
        );
      const [halt] = await open();
      expect(halt).to.include({ state: 1, owner_id: 'bob' });
      expect(halt?.id).not.to.equal(contentionId);
      const outcome = await engine.files.instruct(halt?.id ?? '', { instruction: 'RETRY' }, caller);
      expect(outcome.kind).to.equal('kept');
      await letMonthPass();
      expect(await open(), 'instructed a month ago, and never asked for again').to.deep.equal([]);
    });

    it('keeps old owners and files that are held, contended or reported as blockers', async () => {
      await granted(engine, 'ann', 'a.ts', 'held.ts');
      await contended(engine, 'bob', 'a.ts');
      await letFilesAge(store.database, 200_000);
      // No owner has died: all of them sent heartbeats.
      await store.database.query(
        'update file_owners set last_heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + interval $$1 minute$$',
        [],
      );
      await store.database.query('update pulse set alive_at = clock_timestamp()', []);
      await halted(engine, 'bob', 'a.ts');
      await releaseFiles(engine, 'ann', 'a.ts');
      await releaseFiles(engine, 'ann', 'held.ts');
      await granted(engine, 'eve', 'held.ts');
      await engine.files.endOwner('ann', caller);
      await letFilesAge(store.database, 40 * dayMs);
      await engine.services.pruner.runOnce();
      const names = await store.database.query<{ id: string }>(
        'select owner_id as id from file_owners order by 1',
        [],
      );
      expect(names.map(({ id }) => id)).to.deep.equal(['ann', 'bob', 'eve']);
      const paths = await store.database.query<{ path: string }>(
        'select path from file_leases order by 1',
        [],
      );
      expect(paths.map(({ path }) => path)).to.deep.equal(['a.ts', 'held.ts']);
      const { items } = await engine.files.blockers({}, caller);
      expect(items).to.have.length(1);
    });

    it('continues where another pruner stopped', async () => {
      const { jobId } = await ended();
      const [first = ''] = await letJobsAge(store.database, [jobId], 40);
      const other = await ended();
      const [second = ''] = await letJobsAge(store.database, [other.jobId], 35);
      await engine.services.pruner.runOnce();
      await store.database.query('delete from prune_walks', []);
      expect(await rowsOf(first)).to.include({ jobs: 0 });
      const third = await ended();
      const fourth = await ended();
      const [early = '', late = ''] = await letJobsAge(store.database, [third.jobId, fourth.jobId], 40);
      await store.database.query(
        "insert into prune_walks (walk, mark, rests_until) values ('jobs', $1, '-infinity')",
        [early],
      );
      await engine.services.pruner.runOnce();
      expect(await rowsOf(early)).to.include({ jobs: 1 });
      expect(await rowsOf(late)).to.include({ jobs: 0 });
      await engine.services.pruner.runOnce();
      expect(await rowsOf(early)).to.include({ jobs: 0 });
      expect(await rowsOf(second)).to.include({ jobs: 0 });
    });

    it('grants a file whose row is being deleted', async () => {
      await acquireFiles(engine, 'ann', 'x.ts');
      await releaseFiles(engine, 'ann', 'x.ts');
      await letFilesAge(store.database, 31 * dayMs);
      const [, outcome] = await Promise.all([
        engine.services.pruner.runOnce(),
        acquireFiles(engine, 'zoe', 'x.ts'),
      ]);
      expect(outcome.kind).to.equal('granted');
    });
  });
});

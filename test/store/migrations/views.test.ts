/** The views that the queue contract recommends: their columns, values and plans. */
import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import type { Database } from '../../../src/store/database.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, claimedAndLeased, releaseFor } from '../../support/lease-helpers.ts';

const columns = {
  scheduler_job_runs: `job_id addon_id job_type priority cost_units state attempts created_at started_at finished_at
    claimed_by lease_id final_status error_text result_json metrics_json`,
  scheduler_lease_runs: `lease_id job_id addon_id cost_units ttl_sec granted_at last_heartbeat_at released_at expires_at
    state release_status`,
  scheduler_events: 'id ts entity_type entity_id event_type data_json',
};

type Row = Record<string, unknown>;
const read = (database: Database, text: string, params: unknown[] = []): Promise<Row[]> =>
  database.query<Row>(text, params);

describe("the contract's views", () => {
  onEveryEngine((kind) => {
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

    for (const [view, names] of Object.entries(columns)) {
      it(`gives ${view} the contract's columns, in its order`, async () => {
        const found = await read(
          store.database,
          'select column_name::text as name from information_schema.columns where table_name = $1 order by ordinal_position',
          [view],
        );
        expect(found.map(({ name }) => name)).to.deep.equal(names.split(/\s+/));
      });
    }

    it("shows jobs and leases from submission to end, in the contract's terms", async () => {
      const { database } = store;
      const [job] = await submitted(engine, {
        addon_id: 'ann',
        cost_units: 3,
        priority: 'URGENT',
        max_attempts: 2,
        retry_backoff_s: 0,
      });
      const jobId = job?.jobId ?? '';
      const jobRun = async () =>
        (await read(database, 'select * from scheduler_job_runs where job_id = $1', [jobId]))[0] ?? {};
      const leaseRuns = () =>
        read(database, 'select * from scheduler_lease_runs where job_id = $1 order by granted_at, lease_id', [
          jobId,
        ]);
      expect(await jobRun()).to.include({
        state: 'QUEUED',
        priority: 'URGENT',
        attempts: 0,
        started_at: null,
        final_status: null,
      });
      expect(await leaseRuns()).to.deep.equal([]);

      const first = await acquired(engine, 'w', { addon_id: 'ann' });
      expect(await jobRun()).to.include({
        state: 'RUNNING',
        attempts: 1,
        claimed_by: 'w',
        lease_id: first.lease.leaseId,
      });
      const [active] = await leaseRuns();
      expect(active).to.include({
        lease_id: first.lease.leaseId,
        addon_id: 'ann',
        cost_units: 3,
        ttl_sec: 60,
        state: 'ACTIVE',
        released_at: null,
        release_status: null,
      });

      await letTimePass(database, 3_600_000);
      await engine.services.reaper.runOnce();
      expect(await jobRun()).to.include({ state: 'QUEUED', attempts: 1, claimed_by: null });
      expect((await leaseRuns()).map(({ state, released_at }) => [state, released_at])).to.deep.equal([
        ['EXPIRED', null],
      ]);

      const second = await acquired(engine, 'v', { addon_id: 'ann' });
      await engine.leases.release(
        releaseFor(second, { status: 'FAILED', error: 'no', resultData: { a: 1 }, metrics: { ms: 5 } }),
        caller,
      );
      const ended = await jobRun();
      expect(ended).to.include({
        state: 'FAILED',
        final_status: 'FAILED',
        error_text: 'no',
        attempts: 2,
        claimed_by: 'v',
      });
      expect(ended.result_json).to.deep.equal({ a: 1 });
      expect(ended.metrics_json).to.deep.equal({ ms: 5 });
      expect(ended.finished_at).not.to.equal(null);
      const runs = await leaseRuns();
      expect(runs.map(({ state, release_status }) => [state, release_status])).to.have.deep.members([
        ['EXPIRED', null],
        ['RELEASED', 'FAILED'],
      ]);
      expect(runs.find(({ state }) => state === 'RELEASED')?.released_at).not.to.equal(null);

      const done = await jobEnd(engine, 'SUCCEEDED');
      expect(
        (await read(database, 'select * from scheduler_job_runs where job_id = $1', [done]))[0],
      ).to.include({ state: 'DONE', final_status: 'SUCCEEDED' });
    });

    it('shows each event of jobs and leases once, without a token', async () => {
      const { database } = store;
      const [job] = await submitted(engine, { addon_id: 'bob' });
      const grant = await claimedAndLeased(engine);
      await engine.leases.release(releaseFor(grant), caller);
      const events = async (id: string) =>
        (await read(database, 'select * from scheduler_events where entity_id = $1 order by id', [id])) as {
          id: string;
          entity_type: string;
          event_type: string;
          data_json: Record<string, unknown>;
        }[];
      const ofJob = await events(job?.jobId ?? '');
      expect(ofJob.map(({ event_type }) => event_type)).to.deep.equal([
        'JOB_SUBMITTED',
        'JOB_CLAIMED',
        'JOB_LEASE_PENDING',
        'JOB_DONE',
      ]);
      expect(ofJob.every(({ entity_type }) => entity_type === 'JOB')).to.equal(true);
      const ofLease = await events(grant.lease.leaseId);
      expect(ofLease.map(({ event_type }) => event_type)).to.deep.equal(['LEASE_GRANTED', 'LEASE_RELEASED']);
      expect(ofLease.every(({ entity_type }) => entity_type === 'LEASE')).to.equal(true);
      expect(ofLease[0]?.data_json).to.include({
        job_id: job?.jobId,
        by: 'w',
        from: 'LEASE_PENDING',
        to: 'RUNNING',
      });
      const [count] = await read(
        database,
        `select (select count(*)::int from scheduler_events) as told, (select count(distinct id)::int from scheduler_events) as ids,
          (select count(*) from jobs) + (select sum(case when release_status is null then 1 when from_state = 4 then 3 else 2 end)
            from job_events) as kept`,
      );
      expect(count?.told).to.equal(Number(count?.kept));
      expect(count?.ids).to.equal(Number(count?.kept));
      for (const view of Object.keys(columns)) {
        const [found] = await read(
          database,
          `select count(*)::int as n from ${view} told where told::text like $1`,
          [`%${grant.token}%`],
        );
        expect(found?.n, view).to.equal(0);
      }
    });

    it('reads by primary key when a query names one job or one lease', async () => {
      const { database } = store;
      const drafts = Array.from({ length: jobs }, () =>
        draft({ addon_id: 'dot', job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      await engine.jobs.submitMany(drafts, caller);
      await database.query(
        `update live_jobs set state = 5, lease_id = gen_random_uuid(), claimed_by = 'w' || seq, fence = seq, lease_ttl_s = 60,
          started_at = now(), last_heartbeat_at = now(), expires_at = now() where seq / 4 % 2 = 0`,
        [],
      );
      await database.query(
        `insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state, granted_at,
          last_heartbeat_at, expires_at, ended_at, requeued)
        select gen_random_uuid(), job_id, 1, 'w' || seq, 1, 60, seq, gen_random_uuid(), 1, now(), now(), now(), now(), true
        from jobs`,
        [],
      );
      await database.query(
        `insert into job_outcomes (job_id, state, attempts, cancel_requested, finished_at)
        select gen_random_uuid(), 6, 1, false, now() from jobs`,
        [],
      );
      await database.query(
        "insert into job_events (at, job_id, type, actor) select now(), job_id, 1, 'w' from jobs",
        [],
      );
      await database.query('analyze', []);
      const queries = [
        'select * from scheduler_job_runs where job_id = $1',
        'select * from scheduler_lease_runs where job_id = $1',
        'select * from scheduler_lease_runs where lease_id = $1',
        'select * from scheduler_events where entity_id = $1',
      ];
      for (const query of queries) {
        const plan = await database.transaction(async (sql) => {
          // The settings of a user's session, not of a server. Only empty partitions are not read completely.
          for (const name of ['bitmapscan', 'hashjoin', 'mergejoin'])
            await sql.query(`set local enable_${name} = on`, []);
          return sql.query<{ 'QUERY PLAN': string }>(`explain ${query.replace('$1', `'${nowhere}'`)}`, []);
        });
        const lines = plan.map((line) => line['QUERY PLAN']);
        const scans = lines.filter(
          (line) => /Scan/.test(line) && !/Subquery Scan|Bitmap Index Scan/.test(line),
        );
        expect(scans.length, lines.join('\n')).to.be.above(0);
        for (const scan of scans)
          expect(scan, `${query}\n${lines.join('\n')}`).to.match(/Index (Only )?Scan|Bitmap Heap Scan/);
        const conditions = lines.filter((line) => /Index Cond/.test(line));
        expect(conditions.length, lines.join('\n')).to.equal(scans.length);
      }
    });
  });
});

const jobs = 3_000;
const nowhere = '00000000-0000-4000-8000-000000000000';

async function jobEnd(engine: TestedEngine, status: 'SUCCEEDED'): Promise<string> {
  const [job] = await submitted(engine, { addon_id: 'cid' });
  const grant = await acquired(engine, 'w', { addon_id: 'cid' });
  await engine.leases.release(releaseFor(grant, { status }), caller);
  return job?.jobId ?? '';
}

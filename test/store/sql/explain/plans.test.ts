import { expect } from 'chai';
import type { JobWithResult } from '../../../../src/domain/jobs/job.ts';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import type { Database } from '../../../../src/store/database.ts';
import { listEvents } from '../../../../src/store/sql/events/find.ts';
import { eventWindow, leasesEndingNext, queuePosition } from '../../../../src/store/sql/explain/facts.ts';
import { readJobs } from '../../../../src/store/sql/jobs/read.ts';
import { readLifeSigns } from '../../../../src/store/sql/leases/find.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { caller, engineOn, submitted, submittedIds, type TestedEngine } from '../../../support/jobs.ts';
import { rowsTouched } from '../../../support/rows-touched.ts';

const jobs = 20_000;

describe('an explanation beside a long queue', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let last: string;
    before(async function () {
      this.timeout(60_000);
      store = await kind.open();
      engine = engineOn(store.database);
      const drafts = Array.from({ length: jobs }, (_, i) =>
        draft({ addon_id: `a${i % 2}`, job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      for (let i = 0; i < jobs; i += 10_000)
        last = (await submittedIds(engine, drafts.slice(i, i + 10_000))).at(-1) ?? '';
      await store.database.query('analyze live_jobs', []);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    it('stops counting at ten thousand, and reports that there are more', async () => {
      const told = await engine.jobs.explain(last, caller);
      // No worker has requested a job, so the missing worker comes first.
      const line = told.causes.find(({ code }) => code === 'waiting_in_line');
      expect(told.causes[0]?.code).to.equal('waiting_for_worker');
      expect([line?.code, line?.facts.ahead, line?.facts.ahead_is_more]).to.deep.equal([
        'waiting_in_line',
        10_000,
        true,
      ]);
      expect(line?.facts.ahead_in_lane).to.equal(9_999);
      expect(line?.text).to.match(
        /^more than 10,000 jobs are ahead of it, 9,999 jobs of them for the same workers/,
      );
    });

    it('reads no more rows than it counts', async () => {
      const place = await rowsTouched(store.database, (sql) => queuePosition(sql, last));
      expect(place, 'a place in line').to.be.below(21_000);
      await store.database.query('update live_jobs set priority = 0 where job_id = $1', [last]);
      const first = await rowsTouched(store.database, (sql) => queuePosition(sql, last));
      expect(first, 'the place of the first').to.be.below(60);
      const soon = await rowsTouched(store.database, (sql) => leasesEndingNext(sql, 5));
      expect(soon, 'leases that end next').to.be.below(60);
    });

    it('finds heartbeat statistics of leases by id among any number of others', async () => {
      const { database } = store;
      await database.query(
        `insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state, granted_at,
          last_heartbeat_at, expires_at, ended_at, requeued)
        select gen_random_uuid(), job_id, 1, 'w', 1, 60, seq, gen_random_uuid(), 2, now(), now(), now(), now(), true from jobs`,
        [],
      );
      await database.query(
        `insert into job_outcomes (job_id, state, attempts, cancel_requested, finished_at, lease_id, fence, lease_state)
        select gen_random_uuid(), 6, 1, false, now(), gen_random_uuid(), seq, 2 from jobs`,
        [],
      );
      await database.query('analyze leases, job_outcomes', []);
      const some = await database.query<{ lease_id: string }>(
        `(select lease_id from leases limit 25) union all (select lease_id from job_outcomes limit 25)`,
        [],
      );
      const touched = await rowsTouched(
        database,
        async (sql) => {
          const signs = await readLifeSigns(
            sql,
            some.map(({ lease_id }) => lease_id),
          );
          expect(signs.size).to.equal(50);
        },
        ['live_jobs', 'leases', 'job_outcomes'],
      );
      expect(touched).to.be.within(50, 60);
    });

    it('reads a history of any length from its ends', async () => {
      await store.database.query(
        `insert into job_events (at, job_id, type, actor) select clock_timestamp(), $1, 5, 'w' from generate_series(1, 30000)`,
        [last],
      );
      const window = { first: 20, last: 180 };
      const touched = await rowsTouched(
        store.database,
        async (sql) => expect((await eventWindow(sql, last, null, window)).leftOut).to.equal(19_800),
        ['job_events'],
      );
      expect(touched).to.be.within(400, 21_000);
      const [job] = (await readJobs(store.database, [last])).values();
      const all = await listEvents(store.database, job as JobWithResult, '0', 40_000);
      for (const after of ['0', all[15_000]?.eventId ?? '']) {
        const read = await rowsTouched(
          store.database,
          async (sql) => {
            const from = all.findIndex(({ eventId }) => eventId === after) + 1;
            const page = await listEvents(sql, job as JobWithResult, after, 100);
            expect(page).to.deep.equal(all.slice(from, from + 100));
          },
          ['job_events'],
        );
        expect(read, `rows for a page after ${after}`).to.be.within(100, 150);
      }
    });

    // The embedded engine has one session, so nothing runs between the statements of a transaction.
    if (kind.name === 'embedded') return;
    it('describes one moment, whatever changes while it is read', async () => {
      const [job] = await submitted(engine, { addon_id: 'moment' });
      const jobId = job?.jobId ?? '';
      let statements = 0;
      const { database } = store;
      const interrupted = Object.create(database) as Database;
      interrupted.transaction = (work, signal) =>
        database.transaction(async (sql) => {
          const query = async <Row>(text: string, params: readonly unknown[]) => {
            const rows = await sql.query<Row>(text, params);
            // The time and the job have been read.
            if (++statements === 3) await engine.jobs.cancel(jobId, {}, caller);
            return rows;
          };
          return work({ query, em: (given) => sql.em(given), seal: () => sql.seal() });
        }, signal);
      const asked = engineOn(interrupted);
      const told = await asked.jobs.explain(jobId, caller);
      await asked.stop();
      expect(statements).to.be.above(3);
      expect(told.job.state).to.equal('QUEUED');
      expect(told.steps.map(({ type }) => type)).to.deep.equal(['JOB_SUBMITTED']);
      expect((await engine.jobs.get(jobId, caller)).job.state).to.equal('CANCELED');
    });
  });
});

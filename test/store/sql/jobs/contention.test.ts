/** Concurrent access to the same rows, and many rows that no worker may claim yet. */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { OnDuplicate } from '../../../../gen/leasehold/v1/jobs_pb.js';
import { DomainError } from '../../../../src/domain/errors.ts';
import { draft, type Submitted } from '../../../../src/engine/jobs/submitter.ts';
import { openDatabase } from '../../../../src/store/open.ts';
import { lockDueJobs, readNextDue } from '../../../../src/store/sql/jobs/lock.ts';
import { onEveryEngine, type TestDatabase, type TestEngine } from '../../../support/engines.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../../support/jobs.ts';
import { cancel, expectError, get, jobsPath, submit } from '../../../support/jobs-api.ts';
import { sharedPostgres } from '../../../support/postgres.ts';
import { rowsTouched } from '../../../support/rows-touched.ts';
import { eventually, startTestServer } from '../../../support/server.ts';
import { wires } from '../../../support/wires.ts';

const least = { addon_id: 'a', job_type: 't', cost_units: 1 };
const hourMs = 3_600_000;

/** A database with the engines of two servers, each with its own connections. */
async function twoEngines(kind: TestEngine) {
  const store = await kind.open();
  const other = await openDatabase(store.options);
  const engines: [TestedEngine, TestedEngine] = [engineOn(store.database), engineOn(other)];
  const stop = async () => {
    for (const engine of engines) await engine.stop();
    await other.close();
    await store.close();
  };
  return { store, other, engines, stop };
}

onEveryEngine((kind) => {
  // The embedded database has one connection, so no transaction waits for another one.
  if (kind.name !== 'postgresql') return;

  describe('claims that race for the last jobs', () => {
    const rounds = 100;

    async function race(wanted: readonly [number, number], jobs: number): Promise<string[]> {
      const { store, engines, stop } = await twoEngines(kind);
      const problems: string[] = [];
      try {
        const [first] = engines;
        const drafts = Array.from({ length: jobs }, () => draft(least, false, first.settings));
        await first.jobs.submitMany(drafts, caller);
        for (let round = 0; round < rounds; round++) {
          await store.database.query(
            `update live_jobs set state = 0, claimed_by = null, claim_expires_at = null, check_at = null
            where state <> 0`,
            [],
          );
          const claims = await Promise.all(
            engines.map(async (engine, i) => {
              // In every round the second claim comes at another moment of the first.
              if (i === 1) await delay((round % 17) / 2);
              return engine.jobs.claim({ worker_id: `w${i}`, limit: wanted[i] }, caller);
            }),
          );
          const claimed = claims.flat().map(({ jobId }) => jobId);
          const [row] = await store.database.query<{ free: number }>(
            'select count(*)::int as free from live_jobs where state = 0',
            [],
          );
          const free = row?.free ?? 0;
          const got = claims.map(({ length }) => length);
          const said = `round ${round}: ${got.join(' and ')} of ${wanted.join(' and ')}, ${free} left`;
          if (new Set(claimed).size !== claimed.length) problems.push(`${said}: a job went to both`);
          if (claimed.length + free !== jobs) problems.push(`${said}: ${jobs} jobs there were`);
          const isShort = got.some((count, i) => count < (wanted[i] ?? 0));
          if (isShort && free > 0) problems.push(`${said}: somebody came back short`);
        }
      } finally {
        await stop();
      }
      return problems;
    }

    it('gives both claims their jobs when there are exactly enough', async () => {
      expect(await race([430, 30], 460)).to.deep.equal([]);
    }).timeout(60_000);

    it('leaves no job free when a claim gets fewer than it asked for', async () => {
      expect(await race([20, 20], 30)).to.deep.equal([]);
    });

    it('gives both claims their jobs when there are more than enough', async () => {
      expect(await race([20, 20], 60)).to.deep.equal([]);
    });
  });

  describe('submissions with the same keys, in opposite order, through two servers', () => {
    it('answers in time, creates one job for each key, and causes no deadlock', async () => {
      const rounds = 5;
      const { store, engines, stop } = await twoEngines(kind);
      const name = new URL(store.options.url ?? '').pathname.slice(1);
      const cluster = await sharedPostgres();
      const deadlocks = () =>
        cluster.query(`select deadlocks from pg_stat_database where datname = '${name}'`);
      const before = await deadlocks();
      let ended = false;
      try {
        for (let round = 0; round < rounds; round++) {
          const keys = Array.from({ length: 400 }, (_, i) => `${round}-${i}`);
          const send = async (engine: TestedEngine, keys: readonly string[]) => {
            const drafts = keys.map((key) =>
              draft({ ...least, client_request_id: key }, true, engine.settings),
            );
            const since = performance.now();
            const answers = await engine.jobs.submitMany(drafts, caller);
            expect(performance.now() - since, `ms of a batch in round ${round}`).to.be.below(5_000);
            return new Map(answers.map((answer, i) => [keys[i] as string, answer]));
          };
          const backwards = [...keys].reverse();
          const [here, there] = await Promise.all([send(engines[0], keys), send(engines[1], backwards)]);
          for (const key of keys) {
            const both = [here.get(key), there.get(key)];
            const failures = both.filter((answer) => answer instanceof DomainError);
            expect(failures.map(String), key).to.deep.equal([]);
            const [one, two] = both as Submitted[];
            expect(one?.jobId, key).to.equal(two?.jobId);
            expect([one?.existing, two?.existing], key).to.have.members([true, false]);
          }
        }
        const [row] = await store.database.query<{ n: number }>('select count(*)::int as n from jobs', []);
        expect(row?.n).to.equal(rounds * 400);
        // A connection reports its deadlocks at the latest when it ends.
        for (const engine of engines) await engine.stop();
        await Promise.all(engines.map(({ services }) => services.database.close()));
        ended = true;
        const connected = `select count(*) from pg_stat_activity where datname = '${name}'`;
        await eventually('all connections have ended', async () =>
          (await cluster.query(connected)) === '0' ? true : undefined,
        );
        expect(await deadlocks()).to.equal(before);
      } finally {
        if (ended) await store.close();
        else await stop();
      }
    });
  });

  describe('a row that another session has locked for long', () => {
    it('answers a change of its job with unavailable, and logs no error', async () => {
      await using server = await startTestServer(kind);
      const other = new pg.Client({ connectionString: server.store.options.url });
      await other.connect();
      try {
        const job = await submit(server, {});
        await other.query('begin');
        await other.query('select from live_jobs where job_id = $1 for update', [job.job_id]);
        const answer = await cancel(server, job.job_id);
        expectError(answer, { status: 503, code: 'unavailable' });
        expect(answer.headers.get('retry-after')).to.equal('1');
        await other.query('rollback');
        const levels = server.complaints.map(({ level }) => level);
        expect(levels).not.to.include('error');
        expect((await get(server, `${jobsPath}/${job.job_id}`)).body.job.state).to.equal('QUEUED');
        expect((await cancel(server, job.job_id)).status).to.equal(200);
      } finally {
        await other.end();
      }
    }).timeout(20_000);
  });
});

onEveryEngine((kind) => {
  describe('jobs with a future run_at', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    it('keeps delayed jobs out of scans for due jobs, however many they are', async () => {
      const many = 50_000;
      await submitted(engine, { run_at: new Date(Date.now() + hourMs).toISOString() });
      // Copies the row with all its columns.
      await store.database.query(
        `insert into live_jobs select (copy.row).* from live_jobs live, lateral (
          select jsonb_populate_record(live, jsonb_build_object('job_id', gen_random_uuid())) as row
          from generate_series(1, $1::int) offset 0
        ) copy`,
        [many],
      );
      await store.database.query(
        `insert into jobs select (copy.row).* from jobs job, lateral (
          select jsonb_populate_record(job, jsonb_build_object('job_id', live.job_id)) as row
          from live_jobs live where live.job_id <> job.job_id offset 0
        ) copy`,
        [],
      );
      const looks = async (when: string) => {
        const locked = await rowsTouched(store.database, (sql) => lockDueJobs(sql, 500));
        expect(locked, `rows touched for what is due, ${when}`).to.be.below(50);
        const next = await rowsTouched(store.database, (sql) => readNextDue(sql));
        expect(next, `rows touched for the next that is due, ${when}`).to.be.below(50);
      };
      await looks('without statistics');
      await store.database.query('analyze live_jobs', []);
      await looks('with statistics');
      // The scan finds due rows among them and reads no others.
      await store.database.query(
        `update live_jobs set check_at = now() - interval '1 second'
        where job_id in (select job_id from live_jobs order by job_id limit 7)`,
        [],
      );
      let due = 0;
      const touched = await rowsTouched(store.database, async (sql) => {
        due = (await lockDueJobs(sql, 500)).due.length;
      });
      expect(due).to.equal(7);
      expect(touched, 'rows touched for seven that are due').to.be.below(50);
    });

    it("keeps a job's run_at through a cancellation and a retry", async () => {
      const runAt = new Date(Date.now() + hourMs).toISOString();
      const [job] = await submitted(engine, { run_at: runAt });
      const jobId = job?.jobId ?? '';
      expect(job?.nextRetryAtMs).to.equal(Date.parse(runAt));
      await engine.jobs.cancel(jobId, {}, caller);
      const retried = await engine.jobs.retry(jobId, {}, caller);
      expect(retried).to.include({ state: 'QUEUED', nextRetryAtMs: Date.parse(runAt) });
      expect((await engine.jobs.get(jobId, caller)).job).to.deep.equal(retried);
      const claim = () => engine.jobs.claim({ worker_id: 'w', limit: 10 }, caller);
      expect(await claim()).to.deep.equal([]);
      await engine.services.reaper.runOnce();
      expect(await claim()).to.deep.equal([]);
      await letTimePass(store.database, hourMs + 1_000);
      await engine.services.reaper.runOnce();
      expect((await claim()).map(({ jobId }) => jobId)).to.deep.equal([jobId]);
    });

    it('makes a job claimable at once when it is retried after its run_at', async () => {
      const [job] = await submitted(engine, { run_at: new Date(Date.now() - hourMs).toISOString() });
      const jobId = job?.jobId ?? '';
      await engine.jobs.cancel(jobId, {}, caller);
      expect(await engine.jobs.retry(jobId, {}, caller)).to.include({ nextRetryAtMs: null });
      expect(await engine.jobs.claim({ worker_id: 'w' }, caller)).to.have.length(1);
    });
  });

  describe("a batch submission with an earlier job's key", () => {
    it("returns the first job's id and time when its caller requests that", async () => {
      await using server = await startTestServer(kind);
      for (const [wire, connect] of Object.entries(wires)) {
        const connection = connect(server);
        try {
          const one = {
            addonId: 'a',
            jobType: 't',
            costUnits: 1,
            clientRequestId: `key of ${wire}`,
            onDuplicate: OnDuplicate.RETURN_EXISTING,
          };
          const first = (await connection.jobs.submitJob(one)).job;
          const createdAt = first?.createdAt;
          // Lets the clock advance before the second submission.
          await delay(20);
          const { outcomes } = await connection.jobs.submitJobs({
            jobs: [one, { ...one, clientRequestId: `another of ${wire}` }, one],
          });
          const submitted = outcomes.map(({ outcome }) => {
            if (outcome.case !== 'submitted') throw new Error(`${wire}: ${outcome.value?.detail}`);
            return outcome.value;
          });
          expect(submitted.map(({ existing }) => existing)).to.deep.equal([true, false, true]);
          for (const again of [submitted[0], submitted[2]]) {
            expect(again?.jobId).to.equal(first?.jobId);
            expect(again?.createdAt, wire).to.deep.equal(createdAt);
          }
          expect(submitted[1]?.createdAt).not.to.deep.equal(createdAt);
        } finally {
          connection.close();
        }
      }
    });

    it("returns the first job's time, however long ago it was", async () => {
      const store = await kind.open();
      const engine = engineOn(store.database);
      try {
        const keyed = () => draft({ ...least, client_request_id: 'key' }, true, engine.settings);
        const { job } = await engine.jobs.submit(keyed(), caller);
        await store.database.query("update jobs set created_at = created_at - interval '1 hour'", []);
        const [again] = await engine.jobs.submitMany([keyed()], caller);
        expect(again).to.deep.equal({
          jobId: job.jobId,
          createdAtMs: job.createdAtMs - hourMs,
          existing: true,
        });
      } finally {
        await engine.stop();
        await store.close();
      }
    });
  });
});

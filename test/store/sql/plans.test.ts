import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { newId } from '../../../src/lib/uuid.ts';
import type { EntitySql } from '../../../src/store/connection/sql.ts';
import { claimJobs, findClaimsByRequest } from '../../../src/store/sql/jobs/claim.ts';
import { lockDueJobs, lockLeasedJobs, lockLiveJobs } from '../../../src/store/sql/jobs/lock.ts';
import { changeLiveJobs, endJobs } from '../../../src/store/sql/jobs/update.ts';
import { auditCapacity, reservedNow } from '../../../src/store/sql/leases/capacity.ts';
import { completeLeases } from '../../../src/store/sql/leases/complete.ts';
import { closeLeases, finishJobs, type LeaseEnding } from '../../../src/store/sql/leases/end.ts';
import { extendLeases, extendLeasesWithJobs } from '../../../src/store/sql/leases/extend.ts';
import { findGrantsByJob, findGrantsByRequest } from '../../../src/store/sql/leases/find-grants.ts';
import { grantLeases, grantNext } from '../../../src/store/sql/leases/grant.ts';
import { readLeases } from '../../../src/store/sql/leases/read.ts';
import { compensateOutage } from '../../../src/store/sql/outages.ts';
import { anyCandidate, holdersAmong, lockCandidates } from '../../../src/store/sql/queue/candidates.ts';
import { readQueueGauges, readyMax } from '../../../src/store/sql/queue/gauges.ts';
import { firstWindow, type HeadMarks, noMarks } from '../../../src/store/sql/queue/heads.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { anyJob, caller, engineOn, submittedIds, type TestedEngine } from '../../support/jobs.ts';
import { rowsTouched } from '../../support/rows-touched.ts';

const jobs = 20_000;

describe('plans of queue statements', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let ids: string[];
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    const slots = Array.from({ length: 10 }, () => ({ workerId: 'w', holder: null, requestId: null }));
    const rules = {
      claimTtlMs: 60_000,
      capacityTotal: 100,
      lowWaterMarks: noMarks,
    };
    const claimTen = (sql: EntitySql) => claimJobs(sql, anyJob, slots, rules);

    const stays = async (when: string) => {
      expect(await rowsTouched(store.database, claimTen), `a claim ${when}`).to.be.below(400);
      for (const wait of [false, true]) {
        const locking = await rowsTouched(store.database, (sql) => lockLiveJobs(sql, ids.slice(0, 10), wait));
        expect(locking, `locking ten rows ${when}`).to.be.below(50);
      }
      const due = await rowsTouched(store.database, (sql) => lockDueJobs(sql, 500));
      expect(due, `looking for what is due ${when}`).to.be.below(50);
      // Ready jobs are counted up to a bound, and one head is read for each lane and priority.
      const told = await rowsTouched(store.database, (sql) => readQueueGauges(sql, 100));
      expect(told, `telling how the queue stands ${when}`).to.be.below(readyMax + 50);
    };

    it("touches few rows whatever the planner's statistics say of the queue", async function () {
      this.timeout(60_000);
      await store.database.query('analyze live_jobs', []);
      const drafts = Array.from({ length: jobs }, () =>
        draft({ addon_id: 'a', job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      ids = await submittedIds(engine, drafts);
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

describe('plans of lease statements', () => {
  const jobs = 10_000;
  const some = 10;

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

    /** Makes all jobs queued or all running. The first few always run, and the last few are always queued. */
    async function makeAll(state: 'queued' | 'running'): Promise<void> {
      const run = `state = 5, lease_id = gen_random_uuid(), lease_token = gen_random_uuid(), claimed_by = 'w' || seq,
        request_id = 'r' || seq, fence = seq, lease_ttl_s = 60, started_at = now(), last_heartbeat_at = now(),
        expires_at = now() + interval '1 hour', check_at = now() + interval '1 hour', attempts = 1`;
      const queue = `state = 0, lease_id = null, lease_token = null, claimed_by = null, request_id = null,
        expires_at = null, check_at = null, attempts = 0`;
      const edge = `(select seq from live_jobs order by seq limit 1 offset ${some})`;
      const end = `(select seq from live_jobs order by seq desc limit 1 offset ${some})`;
      await store.database.query(`update live_jobs set ${state === 'queued' ? queue : run}`, []);
      await store.database.query(`update live_jobs set ${run} where seq < ${edge}`, []);
      await store.database.query(`update live_jobs set ${queue} where seq > ${end}`, []);
    }

    /** Number of job rows that each statement touches for ten leases. Its changes are rolled back. */
    async function touched(plan: string): Promise<Record<string, number>> {
      const running = await store.database.query<{
        job_id: string;
        lease_id: string;
        claimed_by: string;
        request_id: string;
      }>(
        'select job_id, lease_id, claimed_by, request_id from live_jobs where state = 5 order by seq limit $1',
        [some],
      );
      const queued = await store.database.query<{ job_id: string }>(
        'select job_id from live_jobs where state = 0 order by seq desc limit $1',
        [some],
      );
      const leaseIds = running.map((row) => row.lease_id);
      const jobIds = running.map((row) => row.job_id);
      const workers = running.map((row) => row.claimed_by);
      const beats = running.map((row) => ({
        leaseId: row.lease_id,
        workerId: row.claimed_by,
        holder: null,
        token: null,
        jobId: null,
        progress: null,
        message: null,
      }));
      const leases = queued.map(({ job_id }) => ({
        jobId: job_id,
        leaseId: newId(),
        token: newId(),
        workerId: 'x',
        holder: null,
        requestId: null,
        state: 'RUNNING' as const,
        ttlS: 60,
        deliveryS: 10,
      }));
      const granting = { from: 'QUEUED', graceS: 0, keepsMessages: true } as const;
      const effects = { units: 1, tallies: [{ laneId: 1, runs: [7], running: -1 }] };
      const endings = jobIds.map((jobId): LeaseEnding => {
        return {
          jobId,
          state: 'EXPIRED',
          status: null,
          error: null,
          errorDetail: null,
          messageIds: ['1-1', '1-2'],
        };
      });
      const nothingLeft = { result: null, metrics: null, deadStream: null };
      const dealing = {
        filter: anyJob,
        ttlS: 60,
        graceS: 0,
        keepsMessages: true,
        totalUnlessSet: 10 * jobs,
      };
      const marked = { json: JSON.stringify([{ lane_id: 1, from_seq: [0, 0, 1, 0] }]), advance() {} };
      const candidates = (sql: EntitySql, lowWaterMarks: HeadMarks) =>
        lockCandidates(sql, anyJob, { count: some, unique: true, window: firstWindow(lowWaterMarks) });
      const dealt = async (sql: EntitySql, lowWaterMarks: HeadMarks) => {
        const found = await grantNext(sql, leases, { ...dealing, lowWaterMarks });
        expect(found !== 'needs decision' && found.grants.filter((grant) => grant)).to.have.length(some);
      };
      const statements: Record<string, (sql: EntitySql) => Promise<unknown>> = {
        extendLeases: (sql) => extendLeases(sql, beats, { wait: false }),
        'extendLeases, waiting': (sql) => extendLeases(sql, beats, { wait: true }),
        extendLeasesWithJobs: (sql) => extendLeasesWithJobs(sql, beats, { wait: false }),
        'extendLeasesWithJobs, waiting': (sql) => extendLeasesWithJobs(sql, beats, { wait: true }),
        lockLeasedJobs: (sql) => lockLeasedJobs(sql, leaseIds, { wait: false }),
        lockLiveJobs: (sql) => lockLiveJobs(sql, jobIds, false),
        'lockLiveJobs, waiting': (sql) => lockLiveJobs(sql, jobIds, true),
        grantLeases: (sql) => grantLeases(sql, leases, granting),
        completeLeases: async (sql) => {
          const handedIn = beats.map((beat) => ({
            ...beat,
            result: { ok: true },
            metrics: null,
            stream: null,
            attempt: 1,
            wantsJob: true,
          }));
          const { jobIds } = await completeLeases(sql, handedIn, { totalUnlessSet: jobs, moreUnits: 1 });
          expect([...jobIds.values()]).to.have.members(running.map((row) => row.job_id));
        },
        finishJobs: (sql) =>
          finishJobs(
            sql,
            endings.map((ending) => ({ ...ending, ...nothingLeft, to: 'TIMEOUT', isPlain: true })),
            effects,
            { nowMs: Date.now(), wanted: true },
          ),
        closeLeases: (sql) => closeLeases(sql, endings, effects, Date.now()),
        endJobs: (sql) =>
          endJobs(
            sql,
            jobIds.map((jobId) => ({ jobId, state: 'DONE', error: null })),
          ),
        changeLiveJobs: (sql) =>
          changeLiveJobs(
            sql,
            jobIds.map((jobId) => ({ jobId, state: 'QUEUED', unclaim: true })),
          ),
        lockDueJobs: (sql) => lockDueJobs(sql, 500),
        readLeases: (sql) => readLeases(sql, leaseIds),
        holdersAmong: (sql) => holdersAmong(sql, workers),
        findGrantsByRequest: (sql) =>
          findGrantsByRequest(
            sql,
            running.map((row) => row.request_id),
          ),
        findClaimsByRequest: (sql) =>
          findClaimsByRequest(
            sql,
            running.map((row) => ({ workerId: row.claimed_by, requestId: row.request_id })),
          ),
        findGrantsByJob: (sql) => findGrantsByJob(sql, jobIds),
        reservedNow: (sql) => reservedNow(sql),
        makeUpForOutage: async (sql) => {
          await sql.query(
            `insert into outages (began_at, ended_at, next_lease_id, leases_extended)
            values (now() - interval '1 hour', now(), '00000000-0000-0000-0000-000000000000', 0)`,
            [],
          );
          await compensateOutage(sql, some, 60_000);
        },
        lockCandidates: (sql) => candidates(sql, noMarks),
        'lockCandidates, from marks': (sql) => candidates(sql, marked),
        anyCandidate: (sql) => anyCandidate(sql, anyJob, noMarks),
        'anyCandidate, from marks': (sql) => anyCandidate(sql, anyJob, marked),
        grantNext: (sql) => dealt(sql, noMarks),
        'grantNext, from marks': (sql) => dealt(sql, marked),
      };
      const rows: Record<string, number> = {};
      for (const [name, statement] of Object.entries(statements)) {
        rows[name] = await rowsTouched(store.database, async (sql) => {
          await sql.query(`set local plan_cache_mode = ${plan}`, []);
          await sql.query('savepoint before', []);
          await statement(sql);
          await sql.query('rollback to savepoint before', []);
        });
      }
      return rows;
    }

    /**
     * Expects each statement to touch only the rows it is asked for: each row is locked, read and written.
     */
    async function stays(when: string): Promise<void> {
      for (const plan of ['force_custom_plan', 'force_generic_plan']) {
        const rows = await touched(plan);
        // Some heads of each lane are read ahead of the wanted ones.
        for (const name of [
          'lockCandidates',
          'lockCandidates, from marks',
          'grantNext',
          'grantNext, from marks',
        ]) {
          expect(rows[name], `${name} ${when}, ${plan}`).to.be.below(200);
          delete rows[name];
        }
        for (const [name, count] of Object.entries(rows)) {
          expect(count, `${name} ${when}, ${plan}`).to.be.at.most(5 * some);
        }
      }
    }

    it("touches few rows whatever the planner's statistics say of the leases", async function () {
      this.timeout(120_000);
      await store.database.query('analyze', []);
      const drafts = Array.from({ length: jobs }, () =>
        draft({ addon_id: 'a', job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      await engine.jobs.submitMany(drafts, caller);
      await makeAll('running');
      await stays('with everything running, after an ANALYZE of empty tables');
      await makeAll('queued');
      await stays('with everything queued, after an ANALYZE of empty tables');
      await store.database.query('analyze', []);
      await stays('with everything queued, after an ANALYZE');
      const audit = await rowsTouched(store.database, (sql) => auditCapacity(sql));
      expect(audit, 'auditCapacity with everything queued').to.be.at.most(2 * some);
      await makeAll('running');
      await stays('with everything running, after an ANALYZE with everything queued');
      await store.database.query('analyze', []);
      await stays('with everything running, after an ANALYZE');
      await makeAll('queued');
      await stays('with everything queued, after an ANALYZE with everything running');
      const later = await rowsTouched(store.database, (sql) => auditCapacity(sql));
      expect(later, 'auditCapacity after an ANALYZE with everything running').to.be.at.most(2 * some);
    });
  });
});

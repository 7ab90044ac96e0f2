/**
 * The guarantee: the number of a lease's heartbeats and its longest silence are known during the lease and
 * after its end.
 */
import { expect } from 'chai';
import { lengthMs } from '../../../src/domain/explain/silences.ts';
import type { Grant, Release } from '../../../src/domain/leases/lease.ts';
import { extendLeases } from '../../../src/store/sql/leases/extend.ts';
import { readLifeSigns } from '../../../src/store/sql/leases/find.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import {
  acquired,
  beatFor,
  claimedAndLeased,
  heardAfter,
  releaseFor,
  wipe,
} from '../../support/lease-helpers.ts';

/** Time that a test may take in addition to the time that it lets pass. */
const slackMs = 10_000;

describe('heartbeat statistics of a lease', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    beforeEach(() => wipe(store.database));
    after(async () => {
      await engine.stop();
      await store.close();
    });

    const signsOf = async (leaseId: string) => {
      const signs = (await readLifeSigns(store.database, [leaseId])).get(leaseId);
      return signs ?? expect.fail(`lease ${leaseId} is not there`);
    };
    const beatAfter = async (grant: Grant, ms: number, more: { progress?: number } = {}) => {
      await heardAfter(store.database, engine, grant, ms, more);
      const { heartbeats, longestSilence } = await signsOf(grant.lease.leaseId);
      if (longestSilence === null) return expect.fail('nothing is known of a silence');
      return { heartbeats, since: longestSilence.sinceMs, ms: lengthMs(longestSilence) };
    };
    /** Sends two heartbeats, the first one after 40 seconds. */
    const kept = async (grant: Grant): Promise<Grant> => {
      await beatAfter(grant, 40_000);
      expect(await beatAfter(grant, 5_000)).to.include({ heartbeats: 2 });
      return grant;
    };
    const release = (grant: Grant, more: Partial<Release> = {}) =>
      engine.leases.release(releaseFor(grant, more), caller);

    for (const [how, take] of [
      ['in one step', () => acquired(engine)],
      ['in two steps', () => claimedAndLeased(engine)],
    ] as const) {
      it(`counts the heartbeats and the longest silence of a lease granted ${how}`, async () => {
        await submitted(engine, {});
        const grant = await take();
        const { leaseId, grantedAtMs } = grant.lease;
        expect(await signsOf(leaseId)).to.deep.equal({ heartbeats: null, longestSilence: null });

        const first = await beatAfter(grant, 20_000);
        expect(first.heartbeats).to.equal(1);
        expect(first.since).to.equal(grantedAtMs - 20_000);
        expect(first.ms).to.be.within(20_000, 20_000 + slackMs);

        const second = await beatAfter(grant, 45_000, { progress: 0.5 });
        expect(second.heartbeats).to.equal(2);
        expect(second.since - (first.since + first.ms)).to.equal(-45_000);
        expect(second.ms).to.be.within(45_000, 45_000 + slackMs);

        // A shorter silence changes nothing. Backdating moves all times alike.
        const third = await beatAfter(grant, 20_000);
        expect(third).to.deep.equal({ heartbeats: 3, since: second.since - 20_000, ms: second.ms });
      });
    }

    it('counts the same when the statement waits for the row lock', async () => {
      await submitted(engine, {});
      const grant = await acquired(engine);
      await letTimePass(store.database, 20_000);
      const extension = { ...beatFor(grant), token: null, jobId: null, progress: null, message: null };
      for (const heartbeats of [1, 2]) {
        const { results } = await extendLeases(store.database, [extension], { wait: true });
        expect(results[0]?.kind).to.equal('extended');
        const signs = await signsOf(grant.lease.leaseId);
        expect(signs.heartbeats).to.equal(heartbeats);
        expect(signs.longestSilence?.sinceMs).to.equal(grant.lease.grantedAtMs - 20_000);
      }
    });

    const ends: Record<string, (grant: Grant) => Promise<unknown>> = {
      'is done': (grant) => release(grant),
      'failed for good': (grant) => release(grant, { status: 'FAILED', error: 'no' }),
      'is to be tried again': (grant) => release(grant, { status: 'FAILED', error: 'no', retryable: true }),
      'was canceled': async (grant) => {
        await engine.jobs.cancel(grant.job.jobId, {}, caller);
        await release(grant);
      },
      'ran out of time': async () => {
        await letTimePass(store.database, 3_600_000);
        expect(await engine.services.reaper.runOnce()).to.equal(1);
      },
    };
    for (const [how, end] of Object.entries(ends)) {
      for (const max_attempts of [1, 2]) {
        it(`keeps heartbeat statistics when the job ${how} at attempt 1 of ${max_attempts}`, async () => {
          await submitted(engine, { max_attempts, retry_backoff_s: 600 });
          const grant = await kept(await acquired(engine));
          const before = await signsOf(grant.lease.leaseId);
          await end(grant);
          const after = await signsOf(grant.lease.leaseId);
          expect(after.heartbeats).to.equal(2);
          expect(lengthMs(after.longestSilence ?? expect.fail('the silence is gone'))).to.equal(
            lengthMs(before.longestSilence ?? expect.fail('there is no silence')),
          );
          // letTimePass does not backdate the table of ended jobs.
          if (how !== 'ran out of time') expect(after).to.deep.equal(before);
        });
      }
    }

    it('keeps statistics of many leases that end at once, and none without heartbeats', async () => {
      await submitted(engine, ...Array.from({ length: 20 }, () => ({})));
      const grants = await Promise.all(Array.from({ length: 20 }, () => acquired(engine)));
      const some = grants.filter((_, i) => i % 2 === 0);
      await letTimePass(store.database, 30_000);
      await engine.leases.heartbeatMany(some.map((grant) => beatFor(grant)));
      await Promise.all(grants.map((grant) => release(grant)));
      for (const [i, { lease }] of grants.entries()) {
        const { heartbeats, longestSilence } = await signsOf(lease.leaseId);
        expect(heartbeats).to.equal(i % 2 === 0 ? 1 : null);
        if (heartbeats === null) expect(longestSilence).to.equal(null);
        else expect(longestSilence?.sinceMs).to.equal(lease.grantedAtMs - 30_000);
      }
    });

    it('counts per attempt, and keeps the statistics of earlier attempts', async () => {
      const [job] = await submitted(engine, { max_attempts: 2, retry_backoff_s: 0 });
      const first = await kept(await acquired(engine));
      const ofFirst = await signsOf(first.lease.leaseId);
      await release(first, { status: 'FAILED', error: 'no', retryable: true });
      const second = await acquired(engine);
      expect(second.lease.attempt).to.equal(2);
      const none = { heartbeats: null, longestSilence: null };
      expect(await signsOf(second.lease.leaseId)).to.deep.equal(none);
      expect((await beatAfter(second, 1_000)).heartbeats).to.equal(1);
      const ofSecond = await signsOf(second.lease.leaseId);
      await release(second, { status: 'FAILED', error: 'no' });

      // A retry turns the last attempt into an earlier one.
      await engine.jobs.retry(job?.jobId ?? '', {}, caller);
      expect(await signsOf(first.lease.leaseId)).to.deep.equal(ofFirst);
      expect(await signsOf(second.lease.leaseId)).to.deep.equal(ofSecond);
      const third = await acquired(engine);
      expect(third.lease.attempt).to.equal(3);
      expect(await signsOf(third.lease.leaseId)).to.deep.equal(none);
    });

    it('reports no statistics for a lease with heartbeats from before they were counted', async () => {
      await submitted(engine, {});
      const grant = await kept(await acquired(engine));
      const forget = 'heartbeats = null, longest_silence_ms = null, longest_silence_since = null';
      await store.database.query(`update live_jobs set ${forget}`, []);
      await letTimePass(store.database, 30_000);
      await engine.leases.heartbeatMany([beatFor(grant)]);
      expect(await signsOf(grant.lease.leaseId)).to.deep.equal({ heartbeats: null, longestSilence: null });
      const { attempts, steps } = await engine.jobs.explain(grant.job.jobId, caller);
      expect(attempts[0]?.signs).to.deep.equal({ heartbeats: null, longestSilence: null, survived: null });
      expect(steps.map(({ kind }) => kind)).not.to.include('HEARTBEATS');
    });

    it('caps a silence that exceeds the largest stored value', async () => {
      await submitted(engine, {});
      const grant = await acquired(engine);
      const daysMs = 60 * 86_400_000;
      await store.database.query(
        `update live_jobs set started_at = started_at - $1::float8 * interval '1 ms',
          last_heartbeat_at = last_heartbeat_at - $1::float8 * interval '1 ms'`,
        [daysMs],
      );
      const { heartbeats, ms, since } = await beatAfter(grant, 0);
      expect([heartbeats, ms, since]).to.deep.equal([1, 2 ** 31 - 1, grant.lease.grantedAtMs - daysMs]);
    });

    it('caps a number of heartbeats that exceeds the largest stored value', async () => {
      await submitted(engine, {}, {});
      const [often, beside] = [await acquired(engine), await acquired(engine)];
      await engine.leases.heartbeatMany([beatFor(often), beatFor(beside)]);
      const most = 2 ** 31 - 1;
      await store.database.query(`update live_jobs set heartbeats = ${most - 1} where lease_id = $1`, [
        often.lease.leaseId,
      ]);
      for (const heartbeats of [2, 3]) {
        const verdicts = await engine.leases.heartbeatMany([beatFor(beside), beatFor(often)]);
        expect(verdicts.map(({ kind }) => kind)).to.deep.equal(['extended', 'extended']);
        expect((await signsOf(often.lease.leaseId)).heartbeats).to.equal(most);
        expect((await signsOf(beside.lease.leaseId)).heartbeats).to.equal(heartbeats);
      }
    });

    it('records no silence when the clock was set back', async () => {
      await submitted(engine, {});
      const grant = await acquired(engine);
      await store.database.query(
        "update live_jobs set started_at = started_at + interval '20 s', last_heartbeat_at = last_heartbeat_at + interval '20 s'",
        [],
      );
      expect(await beatAfter(grant, 0)).to.include({ heartbeats: 1, ms: 0 });
    });
  });
});

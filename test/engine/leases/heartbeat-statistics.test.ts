/**
 * The guarantee: the heartbeat statistics that explain reports are consistent, however the lease ended and
 * whatever the clock did.
 */
import { expect } from 'chai';
import { lengthMs } from '../../../src/domain/explain/silences.ts';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, claimedAndLeased, heardAfter, releaseFor, wipe } from '../../support/lease-helpers.ts';

/** Time that a test may take in addition to the time that it lets pass. */
const slackMs = 5_000;

describe('heartbeat statistics in an explanation', () => {
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

    const beatAfter = (grant: Grant, ms: number) => heardAfter(store.database, engine, grant, ms);
    /** The attempt, its causes and steps, and all texts about it. */
    const told = async ({ lease: { leaseId } }: Grant) => {
      const { lease, attempts, causes, steps, summary } = await engine.leases.explain(leaseId, caller);
      const [attempt] = attempts;
      if (!attempt || !lease) return expect.fail('the attempt is not told');
      // A machine that stalls for some seconds causes an outage of its own.
      const codes = causes.map(({ code }) => code).filter((code) => code !== 'server_away');
      const said = (of: string) => steps.filter((step) => step.kind === of).map(({ text }) => text);
      const expiry = steps.find(({ type }) => type === 'LEASE_EXPIRED')?.text;
      const all = [summary, ...causes.map(({ text }) => text), ...steps.map(({ text }) => text)].join('\n');
      return {
        lease,
        signs: attempt.signs,
        causes,
        codes,
        silences: said('SILENCE'),
        beats: said('HEARTBEATS'),
        expiry,
        all,
      };
    };
    /** As if the database's clock had been set back by `ms` since the grant and the last heartbeat. */
    const setBack = (ms: number) =>
      store.database.query(
        `update live_jobs set ${['started_at', 'last_heartbeat_at', 'expires_at', 'longest_silence_since']
          .map((column) => `${column} = ${column} + $1::float8 * interval '1 ms'`)
          .join(', ')}`,
        [ms],
      );
    const retried = { max_attempts: 2, retry_backoff_s: 600 };

    it('counts the silence in which max_runtime_s ended the lease, but not as the cause', async () => {
      await submitted(engine, { ...retried, max_runtime_s: 100 });
      const grant = await acquired(engine);
      for (let i = 0; i < 5; i++) await beatAfter(grant, 9_000);
      await letTimePass(store.database, 56_000);
      // An explanation before the reaper's round counts the silence up to the time at which the lease expires
      // anyway.
      const overdue = await told(grant);
      expect(overdue.codes).to.deep.equal(['lease_overdue']);
      expect(overdue.signs.longestSilence).to.deep.equal({
        sinceMs: overdue.lease.lastHeartbeatAtMs,
        untilMs: overdue.lease.expiresAtMs,
      });
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      const { lease, signs, codes, silences } = await told(grant);
      expect(codes).to.deep.equal(['over_max_runtime']);
      expect(signs.longestSilence).to.deep.equal({
        sinceMs: lease.lastHeartbeatAtMs,
        untilMs: lease.endedAtMs,
      });
      expect(lengthMs(signs.longestSilence ?? expect.fail())).to.be.within(56_000, 56_000 + slackMs);
      expect(silences).to.have.length(1);
    });

    it('omits a short silence in which max_runtime_s ended the lease', async () => {
      await submitted(engine, { ...retried, max_runtime_s: 30 });
      const grant = await acquired(engine);
      for (let i = 0; i < 3; i++) await beatAfter(grant, 9_000);
      await letTimePass(store.database, 4_000);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      const { codes, silences } = await told(grant);
      expect(codes).to.deep.equal(['over_max_runtime']);
      expect(silences).to.deep.equal([]);
    });

    it('does not count the silence that expired a lease as one it survived', async () => {
      await submitted(engine, { ...retried, max_runtime_s: 1_000 });
      const grant = await acquired(engine);
      await beatAfter(grant, 20_000);
      await letTimePass(store.database, 61_000);
      for (const code of ['lease_overdue', 'no_heartbeat_since']) {
        const { signs, codes } = await told(grant);
        expect(codes).to.deep.equal([code]);
        expect(lengthMs(signs.longestSilence ?? expect.fail())).to.be.within(20_000, 20_000 + slackMs);
        await engine.services.reaper.runOnce();
      }
    });

    it('reports a silence of half the TTL as long, but not as nearly losing the lease', async () => {
      await submitted(engine, retried);
      const grant = await acquired(engine);
      for (let i = 0; i < 3; i++) await beatAfter(grant, 30_000 + i * 5_000);
      const { codes, silences } = await told(grant);
      expect(codes).to.deep.equal(['running']);
      expect(silences).to.have.length(1);
      await letTimePass(store.database, 61_000);
      await engine.services.reaper.runOnce();
      expect((await told(grant)).codes).to.deep.equal(['no_heartbeat_since']);
    });

    it('reports a near loss beside the cause of an expiry, not as its cause', async () => {
      await submitted(engine, retried);
      const grant = await acquired(engine);
      await beatAfter(grant, 46_000);
      expect((await told(grant)).codes).to.deep.equal(['running', 'long_silence']);
      await letTimePass(store.database, 61_000);
      await engine.services.reaper.runOnce();
      const { codes, causes, expiry } = await told(grant);
      expect(codes).to.deep.equal(['no_heartbeat_since', 'long_silence']);
      expect(expiry).to.include(causes[0]?.text).and.not.to.include('had been silent before');
    });

    it('reports a silence that a heartbeat ended, also if the current one is longer', async () => {
      await submitted(engine, retried);
      const grant = await acquired(engine);
      await beatAfter(grant, 46_000);
      await letTimePass(store.database, 54_000);
      const { lease, signs, causes } = await told(grant);
      expect(signs.longestSilence?.sinceMs).to.equal(lease.lastHeartbeatAtMs);
      expect(signs.survived?.sinceMs).to.equal(lease.grantedAtMs);
      expect(causes.find(({ code }) => code === 'long_silence')).to.include(signs.survived);
    });

    for (const [how, take] of [
      ['in one step', () => acquired(engine)],
      ['in two steps', () => claimedAndLeased(engine)],
    ] as const) {
      it(`counts heartbeats in the millisecond of a grant made ${how}`, async () => {
        await submitted(engine, retried);
        const grant = await take();
        for (let i = 0; i < 2; i++) await beatAfter(grant, 0);
        await store.database.query('update live_jobs set last_heartbeat_at = started_at', []);
        const heard = await told(grant);
        expect(heard.signs.heartbeats).to.equal(2);
        expect(heard.beats).to.deep.equal([`heartbeats of ${grant.lease.workerId}`]);
        expect(heard.all).not.to.match(/no heartbeat of|ran it without/);
        await letTimePass(store.database, 61_000);
        await engine.services.reaper.runOnce();
        const { codes, silences } = await told(grant);
        expect(codes).to.deep.equal(['no_heartbeat_since']);
        expect(silences).to.have.length(1);
        expect(silences[0]).to.include('after its last heartbeat');
      });
    }

    it('counts heartbeats after the clock was set back, and reports no mean', async () => {
      await submitted(engine, {});
      const grant = await claimedAndLeased(engine);
      await setBack(3_600_000);
      for (const count of [1, 2, 3]) {
        await beatAfter(grant, 10_000);
        const { lease, signs, beats, all } = await told(grant);
        expect(lease.lastHeartbeatAtMs).to.be.below(lease.grantedAtMs);
        expect(signs.heartbeats).to.equal(count);
        expect(beats).to.have.length(1);
        expect(all).not.to.match(/no heartbeat of|one every/);
      }
      await engine.leases.release(releaseFor(grant), caller);
      expect((await told(grant)).signs.heartbeats).to.equal(3);
    });

    it("ignores statistics of an earlier lease that an old server left in the job's row", async () => {
      await submitted(engine, { max_attempts: 2, retry_backoff_s: 0 });
      const first = await claimedAndLeased(engine);
      await beatAfter(first, 50_000);
      const stored = 'heartbeats, longest_silence_ms, longest_silence_since';
      await store.database.query(`create table left_over as select ${stored} from live_jobs`, []);
      try {
        const failed = { status: 'FAILED', error: 'no', retryable: true } as const;
        await engine.leases.release(releaseFor(first, failed), caller);
        const second = await claimedAndLeased(engine);
        await store.database.query(
          `update live_jobs set (${stored}) = (select ${stored} from left_over)`,
          [],
        );
        const unkept = await told(second);
        expect([unkept.signs.heartbeats, unkept.signs.survived, unkept.codes]).to.deep.equal([
          0,
          null,
          ['running'],
        ]);
        await beatAfter(second, 20_000);
        const { signs, codes } = await told(second);
        expect([signs, codes]).to.deep.equal([
          { heartbeats: null, longestSilence: null, survived: null },
          ['running'],
        ]);
      } finally {
        await store.database.query('drop table left_over', []);
      }
    });
  });
});

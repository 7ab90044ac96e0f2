import { expect } from 'chai';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, engineSettings, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquire, acquired, expectDenied, releaseFor, wipe } from '../../support/lease-helpers.ts';

describe('RetryHints', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    const engines: TestedEngine[] = [];
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());
    beforeEach(() => wipe(store.database));
    afterEach(async () => {
      await Promise.all(engines.splice(0).map((engine) => engine.stop()));
    });

    /** A server that has observed nothing yet. */
    const fresh = (): TestedEngine => {
      const engine = engineOn(store.database, { ...engineSettings, capacityTotal: 1 });
      engines.push(engine);
      return engine;
    };
    const hint = async (engine: TestedEngine): Promise<number> =>
      expectDenied(await acquire(engine, 'asker')).retryAfterMs;
    /** Hints of `count` requests in sequence, each on its own server. */
    const hints = async (count: number): Promise<number[]> => {
      const all: number[] = [];
      for (let i = 0; i < count; i++) all.push(await hint(fresh()));
      return all;
    };
    const dueIn = (ms: number) =>
      store.database.query(
        `update live_jobs set check_at = clock_timestamp() + $1::float8 * interval '1 ms',
          expires_at = clock_timestamp() + $1::float8 * interval '1 ms' where lease_token is not null`,
        [ms],
      );

    it('bases the hint on the next expiry, within 20 % on either side', async () => {
      await submitted(fresh(), {}, {});
      await acquired(fresh());
      for (const ms of [10_000, 20_000, 4_000]) {
        await dueIn(ms);
        // Part of the time has passed when the last request is made.
        for (const one of await hints(6))
          expect(one, `with an expiry in ${ms} ms`).to.be.within(0.8 * ms - 2_500, 1.2 * ms);
      }
    });

    it('bases the hint on the next ready time when no lease expires earlier', async () => {
      const runAt = new Date(Date.now() + 15_000).toISOString();
      await submitted(fresh(), { run_at: runAt }, { run_at: new Date(Date.now() + 3_600_000).toISOString() });
      for (const one of await hints(4)) expect(one).to.be.within(0.8 * 15_000 - 3_000, 1.2 * 15_000);
    });

    it('varies the hint between requests that are denied together', async () => {
      const engine = fresh();
      await submitted(engine, {}, {});
      await acquired(engine);
      await dueIn(10_000);
      const told = await Promise.all(Array.from({ length: 30 }, () => hint(engine)));
      expect(Math.max(...told) - Math.min(...told)).to.be.above(1_000);
    });

    it('bounds the hint to between 100 ms and 30 s', async () => {
      await submitted(fresh(), {}, {});
      await acquired(fresh());
      await dueIn(3_600_000);
      const far = await hints(3);
      for (const one of far) expect(one).to.be.within(20_000, 30_000);
      expect(new Set(far)).to.have.length.above(1);
      await dueIn(-5_000);
      for (const one of await hints(3)) expect(one).to.be.within(100, 120);
    });

    it('hints at about two seconds when nothing is known', async () => {
      for (const one of await hints(5)) expect(one).to.be.within(1_600, 2_400);
    });

    it('shortens the hint while jobs and units become available steadily', async () => {
      const engine = fresh();
      await submitted(engine, ...Array.from({ length: 42 }, () => ({})));
      for (let i = 0; i < 40; i++) await engine.leases.release(releaseFor(await acquired(engine)), caller);
      await acquired(engine);
      await dueIn(25_000);
      expect(await hint(engine)).to.be.below(5_000);
      expect(await hint(fresh())).to.be.above(15_000);
    });

    it('lengthens the hint when many are denied, without a database query for each', async () => {
      const engine = fresh();
      await submitted(engine, {}, {});
      await acquired(engine);
      await dueIn(3_000);
      const alone = await hint(fresh());
      const crowd = await Promise.all(Array.from({ length: 12_000 }, () => hint(engine)));
      expect(Math.max(...crowd)).to.be.above(2 * alone);
      expect(Math.max(...crowd)).to.be.at.most(30_000);
    });

    it('gives a hint also when a lease request for a claimed job is denied', async () => {
      const engine = fresh();
      await submitted(engine, {}, {});
      await acquired(engine);
      await dueIn(10_000);
      const [job] = await engine.jobs.claim({ worker_id: 'w' }, caller);
      const outcome = await engine.leases.request({ job_id: job?.jobId ?? '' }, caller);
      expect(expectDenied(outcome).retryAfterMs).to.be.within(6_000, 12_000);
    });
  });
});

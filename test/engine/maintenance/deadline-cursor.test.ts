import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { DeadlineCursor } from '../../../src/engine/maintenance/deadline-cursor.ts';
import { lockDueJobs, nextDeadlinesInMs, readNextDue } from '../../../src/store/sql/jobs/lock.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, Holder } from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

const front = Number.NEGATIVE_INFINITY;

describe('DeadlineCursor', () => {
  let clockMs: number;
  let nowMs: number;
  let deadlines: number[];
  let began: number[];
  let frontTakesMs: number;
  let mark: DeadlineCursor;
  beforeEach(() => {
    clockMs = 0;
    nowMs = 1_000_000;
    deadlines = [];
    began = [];
    frontTakesMs = 0;
    mark = new DeadlineCursor(() => clockMs);
  });

  const look = () =>
    mark.cursorFor(async (fromMs) => {
      began.push(fromMs);
      if (fromMs === front) pass(frontTakesMs);
      return { nowMs, firstMs: deadlines.filter((each) => each >= fromMs).sort((a, b) => a - b)[0] ?? null };
    });
  const pass = (ms: number) => {
    clockMs += ms;
    nowMs += ms;
  };

  it('starts at the front of the index while that is fast', async () => {
    for (let i = 0; i < 5; i++) {
      expect(await look()).to.equal(null);
      pass(25);
    }
    expect(began).to.deep.equal([front, front, front, front, front]);
  });

  it('starts where the last scan found nothing, while scans from the front are slow', async () => {
    frontTakesMs = 100;
    deadlines = [1_030_000, 1_000_500.25];
    expect(await look()).to.equal(400.25);
    pass(1_900);
    // An overdue deadline stays in view until a server has handled it.
    for (let i = 0; i < 2; i++) expect(await look()).to.equal(1_000_500.25 - nowMs);
    deadlines.pop();
    expect(await look()).to.equal(1_030_000 - nowMs);
    pass(10);
    await look();
    expect(began).to.deep.equal([front, 999_100, 1_000_500, 1_000_500, nowMs - 1_010]);
  });

  it('finds what commits within a second, and later commits in a scan from the front', async () => {
    frontTakesMs = 100;
    await look();
    pass(500);
    await look();
    deadlines = [nowMs - 900];
    expect(await look()).to.equal(-900);
    deadlines = [nowMs - 5_000];
    pass(1_000);
    expect(await look()).to.equal(null);
    pass(1_400);
    expect(await look()).to.equal(null);
    pass(100);
    expect(await look()).to.be.below(-5_000);
    expect(began.filter((fromMs) => fromMs === front)).to.have.length(2);
  });
});

onEveryEngine((kind) => {
  // The embedded database has one session, so no other session holds a snapshot of it.
  if (kind.name !== 'postgresql') return;

  describe('deadlines behind an old snapshot', () => {
    const leases = 2_000;
    const renewals = 40;
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

    const tookMs = async (work: () => Promise<unknown>): Promise<number> => {
      const times: number[] = [];
      for (let i = 0; i < 7; i++) {
        const beganMs = performance.now();
        await work();
        times.push(performance.now() - beganMs);
      }
      return Math.min(...times);
    };

    it('skips dead tuples when reading the next deadlines, and misses none', async function () {
      this.timeout(60_000);
      const { database } = store;
      const one = () => draft({ addon_id: 'other', job_type: 't', cost_units: 1 }, false, engine.settings);
      await engine.jobs.submitMany(Array.from({ length: leases }, one), caller);
      await submitted(engine, {});
      const { job } = await acquired(engine, 'w', { addon_id: 'a' });
      const holder = await Holder.hold(store, 'declare old cursor for select from live_jobs');
      try {
        // As if the reaper had examined and rescheduled the leases again and again.
        for (let i = 0; i < renewals; i++) {
          await database.query(
            `update live_jobs set check_at = clock_timestamp() - interval '1 hour' + $1::int * interval '1 second'
            where job_id <> $2`,
            [i, job.jobId],
          );
        }
        await database.query(
          "update live_jobs set check_at = clock_timestamp() + interval '1 hour' where job_id <> $1",
          [job.jobId],
        );
        await database.query('vacuum live_jobs', []);
        const mark = new DeadlineCursor();
        await mark.cursorFor((fromMs) => readNextDue(database, fromMs));
        const { fromMs } = mark;
        const looks: Record<string, (from: number) => Promise<unknown>> = {
          'for the next': (from) => readNextDue(database, from),
          'for what is due': (from) => lockDueJobs(database, 500, from),
          'for prospects': (from) => nextDeadlinesInMs(database, from),
        };
        for (const [what, read] of Object.entries(looks)) {
          const fromFront = await tookMs(() => read(front));
          const fromMark = await tookMs(() => read(fromMs));
          expect(fromMark, `ms to look ${what}, where ${fromFront} from the front`).to.be.below(
            fromFront / 4,
          );
        }
        // The server was alive all the time.
        await database.query('update pulse set alive_at = clock_timestamp()', []);
        engine.services.outageMonitor.start();
        engine.services.reaper.start();
        const soon = "clock_timestamp() + interval '700 ms'";
        await database.query(
          `update live_jobs set check_at = ${soon}, expires_at = ${soon} where job_id = $1`,
          [job.jobId],
        );
        await eventually('the lease has expired', async () =>
          (await engine.jobs.get(job.jobId, caller)).job.state === 'TIMEOUT' ? true : undefined,
        );
        const { items } = await engine.jobs.events(job.jobId, {}, caller);
        const expired = items.find(({ type }) => type === 'LEASE_EXPIRED');
        const lateMs = (expired?.tsMs ?? 0) - Date.parse(String(expired?.data.expires_at));
        expect(lateMs).to.be.within(0, 2_000);
      } finally {
        await holder.letGo();
      }
    });
  });
});

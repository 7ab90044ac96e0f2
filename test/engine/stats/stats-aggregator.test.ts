import { expect } from 'chai';
import type { DomainError } from '../../../src/domain/errors.ts';
import type { MetricName } from '../../../src/domain/stats/series.ts';
import { StatsAggregator } from '../../../src/engine/stats/stats-aggregator.ts';
import { createLog } from '../../../src/lib/log.ts';
import type { Database } from '../../../src/store/database.ts';
import { aggregateTallies, lockAggregation, pruneRollups } from '../../../src/store/sql/stats/aggregate.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import {
  acquired,
  beatFor,
  claimedAndLeased,
  Holder,
  moreServers,
  releaseFor,
} from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

const minuteMs = 60_000;

describe('StatsAggregator', () => {
  onEveryEngine((kind) => {
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

    const snapshot = (of = engine) => of.stats.snapshot({}, caller);
    const queued = async (of = engine) => (await snapshot(of)).jobs.queued;
    const tallies = async (): Promise<number> => {
      const [row] = await store.database.query<{ n: number }>(
        'select count(*)::int as n from stat_tallies',
        [],
      );
      return row?.n ?? 0;
    };
    const backdate = (minutes: number) =>
      store.database.query("update stat_tallies set at = at - $1::int * interval '1 minute'", [minutes]);
    const series = async (metric: MetricName, bucket: '1m' | '5m' | '15m' | '1h' = '1m') => {
      const { points } = await engine.stats.timeseries({ metric, bucket, range: '3h' }, caller);
      return points;
    };

    it('aggregates each tally once when two servers run at the same time', async () => {
      await submitted(engine, {}, {}, {});
      const folded = await Promise.all([
        engine.services.statsAggregator.runOnce(),
        engineOn(store.database).services.statsAggregator.runOnce(),
      ]);
      expect(folded.reduce((sum, one) => sum + (one?.tallies ?? 0), 0)).to.equal(3);
      expect(await tallies()).to.equal(0);
      expect(await queued()).to.equal(3);
      expect(
        (await series('jobs_submitted', '1h')).reduce((sum, { value }) => sum + (value ?? 0), 0),
      ).to.equal(3);
    });

    it('loses nothing when an aggregator dies before its commit', async () => {
      await submitted(engine, {}, {});
      const dies = store.database.transaction(async (sql) => {
        expect(await lockAggregation(sql)).to.equal(true);
        expect((await aggregateTallies(sql, 100, 100)).tallies).to.equal(2);
        throw new Error('it died');
      });
      expect(await dies.catch(({ message }: Error) => message)).to.equal('it died');
      expect(await tallies()).to.equal(2);
      expect(await queued()).to.equal(2);
      await engine.services.statsAggregator.runOnce();
      expect(await queued()).to.equal(2);
    });

    it('aggregates more tallies than fit one transaction', async () => {
      await submitted(engine, {}, {}, {}, {}, {});
      await store.database.transaction((sql) => aggregateTallies(sql, 2, 100));
      expect([await tallies(), await queued()]).to.deep.equal([3, 5]);
      await store.database.transaction((sql) => aggregateTallies(sql, 2, 100));
      await store.database.transaction((sql) => aggregateTallies(sql, 2, 100));
      expect([await tallies(), await queued()]).to.deep.equal([0, 5]);
    });

    it('finds tallies from the last position on, without scanning dead tuples', async () => {
      await submitted(engine, {}, {});
      const [last] = await store.database.query<{ txid: string }>(
        'select max(txid)::text as txid from stat_tallies',
        [],
      );
      // An open transaction of another database holds the mark back until it ends.
      const mark = await eventually('the mark is behind all that was added up', async () => {
        await engine.services.statsAggregator.runOnce();
        const [fold] = await store.database.query<{ mark: string }>(
          'select folded_before::text as mark from stat_fold',
          [],
        );
        return BigInt(fold?.mark ?? 0) > BigInt(last?.txid ?? 0) ? fold?.mark : undefined;
      });
      const [found] = await store.database.query<{ n: string }>(
        'select pg_snapshot_xmax(pg_current_snapshot())::text as n',
        [],
      );
      expect(BigInt(mark) <= BigInt(found?.n ?? 0), `the mark ${mark} is in the future`).to.equal(true);
    });

    it('finds tallies after a restore into a cluster with lower transaction ids', async () => {
      await submitted(engine, {});
      await engine.services.statsAggregator.runOnce();
      await store.database.query('update stat_fold set folded_before = 4611686018427387904', []);
      await submitted(engine, {});
      expect(await queued()).to.equal(2);
      expect((await engine.services.statsAggregator.runOnce())?.tallies).to.equal(1);
      expect([await tallies(), await queued()]).to.deep.equal([0, 2]);
      await submitted(engine, {});
      expect(await queued()).to.equal(3);
    });

    it('counts a job that fails again after a retry once, and not when it is DONE (D9)', async () => {
      const failed = async () => (await snapshot()).last24h.failed;
      const failures = async () =>
        (await series('jobs_failed')).reduce((sum, { value }) => sum + (value ?? 0), 0);
      const end = async (status: 'FAILED' | 'SUCCEEDED') => {
        const grant = await acquired(engine);
        await engine.leases.release(releaseFor(grant, { status, retryable: false }), caller);
      };
      const [job] = await submitted(engine, {}, {});
      await end('FAILED');
      await end('FAILED');
      expect([await failed(), await failures()]).to.deep.equal([2, 2]);
      await engine.jobs.retry(job?.jobId ?? '', {}, caller);
      expect([await failed(), await failures()]).to.deep.equal([1, 2]);
      await end('FAILED');
      expect([await failed(), await failures()]).to.deep.equal([2, 3]);
      await engine.services.statsAggregator.runOnce();
      expect([await failed(), await failures()]).to.deep.equal([2, 3]);
      await engine.jobs.retry(job?.jobId ?? '', {}, caller);
      await end('SUCCEEDED');
      await engine.services.statsAggregator.runOnce();
      expect([await failed(), await failures()]).to.deep.equal([1, 3]);
    });

    it('counts no failure older than a day, nor its retry (D9)', async () => {
      const { database } = store;
      const failed = async () => (await snapshot()).last24h.failed;
      const fail = async () => {
        const grant = await acquired(engine);
        await engine.leases.release(releaseFor(grant, { status: 'FAILED', retryable: false }), caller);
      };
      const [job] = await submitted(engine, {});
      await fail();
      expect(await failed()).to.equal(1);
      await backdate(24 * 60 + 10);
      await database.query(
        "update job_outcomes set finished_at = finished_at - interval '24 hours 10 minutes'",
        [],
      );
      expect(await failed()).to.equal(0);
      await engine.jobs.retry(job?.jobId ?? '', {}, caller);
      expect(await failed()).to.equal(0);
      await engine.services.statsAggregator.runOnce();
      expect(await failed()).to.equal(0);
      await fail();
      expect(await failed()).to.equal(1);
    });

    it('counts a retry in the minute of its failure, whichever way the job failed (D9)', async () => {
      const { database } = store;
      const failAtOnce = async () => {
        const grant = await acquired(engine);
        await engine.leases.release(releaseFor(grant, { status: 'FAILED', retryable: false }), caller);
      };
      const loseClaims = async () => {
        const { maxClaims } = engine.settings;
        for (let i = 0; i < maxClaims; i++) {
          await engine.jobs.claim({ worker_id: 'w' }, caller);
          await letTimePass(database, 100_000);
          await engine.services.reaper.runOnce();
        }
      };
      for (const fail of [failAtOnce, loseClaims]) {
        const [job] = await submitted(engine, {});
        await fail();
        await engine.jobs.retry(job?.jobId ?? '', {}, caller);
        const rows = await database.query<{ at: string }>(
          'select at::text from stat_tallies where failed + failed_retried > 0 order by txid',
          [],
        );
        expect(rows, fail.name).to.have.length(2);
        expect(rows[0]?.at, fail.name).to.equal(rows[1]?.at);
        await engine.jobs.cancel(job?.jobId ?? '', {}, caller);
        await engine.services.statsAggregator.runOnce();
      }
    });

    it('is correct when a tally arrives after later ones', async () => {
      await submitted(engine, {}, {});
      await backdate(10);
      await engine.services.statsAggregator.runOnce();
      await submitted(engine, {}, {}, {});
      await backdate(20);
      const look = async () => {
        const points = (await series('jobs_queued')).filter(({ value }) => value !== null);
        const submissions = (await series('jobs_submitted')).filter(({ value }) => value);
        return [points.map(({ value }) => value), submissions.map(({ value }) => value)];
      };
      expect(await look()).to.deep.equal([
        [3, 5, 5],
        [3, 2],
      ]);
      await engine.services.statsAggregator.runOnce();
      expect(await look()).to.deep.equal([
        [3, 5, 5],
        [3, 2],
      ]);
    });

    it('reports 0 for minutes in which a server lived, and unknown for others', async () => {
      for (const minutes of [150, 149, 90]) {
        await engine.services.statsAggregator.runOnce();
        await store.database.query(
          "update stat_rollups set bucket = bucket - $1::int * interval '1 minute' where level = 1 and bucket > clock_timestamp() - interval '5 minutes'",
          [minutes],
        );
      }
      await engine.services.statsAggregator.runOnce();
      const points = await series('jobs_failed');
      const known = points.flatMap(({ value }, i) => (value === null ? [] : [points.length - 1 - i]));
      // The minute may have changed meanwhile.
      expect(known).to.have.length.within(4, 5);
      expect(points.at(-1)?.value).to.equal(0);
      const usable = await series('capacity_usable');
      expect(usable.filter(({ value }) => value === 100)).to.have.length(known.length);
    });

    it('reports the units that were usable at the end of each bucket', async () => {
      await engine.services.statsAggregator.runOnce();
      await store.database.query("update stat_rollups set bucket = bucket - interval '1 hour'", []);
      await engine.capacity.set({ total: 60 }, caller);
      await engine.services.statsAggregator.runOnce();
      await engine.capacity.set({ total: 40, busy_rating: 5 }, caller);
      const values = (await series('capacity_usable', '1h')).map(({ value }) => value);
      // The hour may have changed meanwhile.
      expect(values[1] ?? values[0]).to.equal(100);
      expect(values.at(-1)).to.equal(20);
      await engine.services.statsAggregator.runOnce();
      const [row] = await store.database.query<{ usable: string }>(
        "select usable from stat_rollups where addon_id = '' and level = 1 order by bucket desc limit 1",
        [],
      );
      expect(row?.usable).to.equal('20');
    });

    it("measures a job's wait from the time at which it became ready", async () => {
      const { database } = store;
      const readyIn = async (jobId: string) => {
        const [row] = await database.query<{ ms: number }>(
          'select extract(epoch from ready_at - clock_timestamp())::float8 * 1000 as ms from live_jobs where job_id = $1',
          [jobId],
        );
        return row?.ms ?? Number.NaN;
      };
      const inAnHour = new Date(Date.now() + 60 * minuteMs).toISOString();
      const [later] = await submitted(engine, { run_at: inAnHour });
      expect(await readyIn(later?.jobId ?? '')).to.be.within(58 * minuteMs, 62 * minuteMs);
      await engine.jobs.cancel(later?.jobId ?? '', {}, caller);

      const [job] = await submitted(engine, { max_attempts: 3, retry_backoff_s: 600 });
      const jobId = job?.jobId ?? '';
      await database.query("update live_jobs set ready_at = ready_at - interval '1 hour' where job_id = $1", [
        jobId,
      ]);
      // A claim that ends without a lease is no attempt.
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      await engine.jobs.updateStatus(jobId, { state: 'QUEUED' }, caller);
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      await letTimePass(database, 100_000);
      await engine.services.reaper.runOnce();
      expect(await readyIn(jobId)).to.be.within(-62 * minuteMs, -58 * minuteMs);
      const grant = await acquired(engine);
      const waited =
        (await series('wait_ms_p50')).at(-1)?.value ?? (await series('wait_ms_p50')).at(-2)?.value;
      expect(waited).to.be.within(58 * minuteMs, 63 * minuteMs);
      // The next attempt waits for its backoff, and then for a lease.
      await engine.leases.release(releaseFor(grant, { status: 'FAILED', retryable: true }), caller);
      expect(await readyIn(jobId)).to.be.within(5 * minuteMs, 11 * minuteMs);
    });

    it('repairs totals that were changed by hand, and logs that', async () => {
      const lines: string[] = [];
      const log = createLog({ level: 'warn', human: false, write: (line) => void lines.push(line) });
      const folder = new StatsAggregator({
        database: store.database,
        notifier: engine.services.notifier,
        capacityTotal: 100,
        retentionDays: 30,
        log,
      });
      await submitted(engine, { addon_id: 'ann', cost_units: 4 }, { addon_id: 'bob' });
      await claimedAndLeased(engine);
      await folder.runOnce();
      expect(await folder.audit()).to.deep.equal({ shortfalls: [], wasTotalWrong: false });
      expect(lines).to.deep.equal([]);
      await store.database.query(
        "update stat_totals set queued = queued + 5, used = used - 1 where addon_id = 'ann'",
        [],
      );
      await submitted(engine, { addon_id: 'ann' });
      const repairs = await folder.audit();
      expect(repairs?.wasTotalWrong).to.equal(true);
      expect(repairs?.shortfalls).to.deep.equal([
        { addonId: 'ann', queued: -5, claimed: 0, reserved: 0, running: 0, used: 1 },
      ]);
      expect(lines).to.have.length(1);
      expect(lines[0]).to.include('repaired');
      expect((await snapshot()).jobs).to.deep.equal({ queued: 2, claimed: 0, running: 1 });
      const ann = await engine.stats.snapshot({ addon_id: 'ann' }, caller);
      expect([ann.jobs.queued, ann.jobs.running, ann.capacity.used]).to.deep.equal([1, 1, 4]);
      expect(await folder.audit()).to.deep.equal({ shortfalls: [], wasTotalWrong: false });
      await folder.runOnce();
      expect(await folder.audit()).to.deep.equal({ shortfalls: [], wasTotalWrong: false });
      // Jobs that were deleted by hand are corrected too.
      await store.database.query('delete from live_jobs where state = 0', []);
      expect(
        (await folder.audit())?.shortfalls.map(({ addonId, queued }) => [addonId, queued]),
      ).to.deep.equal([
        ['ann', -1],
        ['bob', -1],
      ]);
      expect(await queued()).to.equal(0);
    });

    it('aggregates soon after a commit while started, and no longer once stopped', async () => {
      const { statsAggregator } = engine.services;
      statsAggregator.start();
      statsAggregator.start();
      await eventually('the minute is known', async () => {
        const rows = await store.database.query("select from stat_rollups where addon_id = ''", []);
        return rows.length > 0 ? true : undefined;
      });
      await submitted(engine, {}, {});
      await eventually('the tallies are added up', async () => ((await tallies()) === 0 ? true : undefined));
      expect(await queued()).to.equal(2);
      await statsAggregator.stop();
      await statsAggregator.stop();
      await submitted(engine, {});
      expect(await tallies()).to.equal(1);
      expect(await queued()).to.equal(3);
    });

    it('keeps only hourly rollups of old data', async () => {
      await engine.services.statsAggregator.runOnce();
      await store.database.query("update stat_rollups set bucket = bucket - interval '3 days'", []);
      await engine.services.statsAggregator.runOnce();
      expect(await pruneRollups(store.database, 1, 48 * 60 * minuteMs, 10)).to.equal(1);
      expect(await pruneRollups(store.database, 1, 48 * 60 * minuteMs, 10)).to.equal(0);
      const levels = await store.database.query<{ level: number; n: number }>(
        'select level, count(*)::int as n from stat_rollups group by 1 order by 1',
        [],
      );
      expect(levels).to.deep.equal([
        { level: 1, n: 1 },
        { level: 5, n: 2 },
        { level: 60, n: 2 },
      ]);
    });

    it('reads one snapshot for all callers with the same watch, and sends it at once', async () => {
      const { database } = store;
      const reads = countReads(database);
      const watchers = Array.from({ length: 20 }, () => engine.stats.watch({ interval_ms: 200 }, caller));
      const first = await Promise.all(watchers.map((one) => one.next()));
      expect(first.every(({ value }) => value?.jobs.queued === 0)).to.equal(true);
      expect(reads.count).to.equal(1);
      await submitted(engine, {});
      const next = () => Promise.all(watchers.map((one) => one.next()));
      await eventually('all have been told of the job', async () =>
        (await next()).every(({ value }) => value?.jobs.queued === 1) ? true : undefined,
      );
      await next();
      expect(reads.count).to.be.below(20);
      await Promise.all(watchers.map((one) => one.return(undefined)));
    });

    it('ends watches when the server stops, however long their interval', async () => {
      const watcher = engine.stats.watch({ interval_ms: 60_000 }, caller);
      await watcher.next();
      const waiting = watcher.next().then(
        () => 'told',
        ({ code }: DomainError) => code,
      );
      await engine.drain();
      expect(await waiting).to.equal('unavailable');
      expect(
        await engine.services.statsQueries
          .watch({}, caller)
          .next()
          .catch(({ code }: DomainError) => code),
      ).to.equal('unavailable');
    });

    if (kind.name === 'postgresql') {
      /** Runs jobs through their whole life, and cancels one, on a server of its own. */
      const work = async () => {
        const servers = await moreServers(store, 1);
        const [other] = servers.engines;
        if (!other) throw new Error('there is no other server');
        try {
          await submitted(other, {}, {}, { max_attempts: 2, retry_backoff_s: 0 });
          const grant = await claimedAndLeased(other);
          const [verdict] = await other.leases.heartbeatMany([beatFor(grant)]);
          expect(verdict?.kind).to.equal('extended');
          await other.leases.release(releaseFor(grant), caller);
          const [job] = await other.jobs.claim({ worker_id: 'w' }, caller);
          await other.jobs.cancel(job?.jobId ?? '', {}, caller);
          await acquired(other);
          await letTimePass(store.database, 100_000);
          await other.services.reaper.runOnce();
        } finally {
          await servers.stop();
        }
      };

      it('blocks no other transaction, and no second server aggregates meanwhile', async () => {
        await submitted(engine, {});
        await engine.services.statsAggregator.runOnce();
        await submitted(engine, {});
        await store.database.transaction(async (sql) => {
          expect(await lockAggregation(sql)).to.equal(true);
          expect((await aggregateTallies(sql, 100, 100)).tallies).to.equal(1);
          await work();
          expect(await queued()).to.equal(2);
          expect(await engine.services.statsAggregator.runOnce()).to.equal(undefined);
          expect(await engine.services.statsAggregator.audit()).to.equal(undefined);
        });
        expect(await queued()).to.equal(2);
        await engine.services.statsAggregator.runOnce();
        expect(await tallies()).to.equal(0);
        expect(await engine.services.statsAggregator.audit()).to.deep.equal({
          shortfalls: [],
          wasTotalWrong: false,
        });
      });

      it('delays no call on jobs while the statistics tables are locked', async () => {
        const holder = await Holder.hold(
          store,
          'lock table stat_totals, stat_rollups, stat_fold in access exclusive mode',
        );
        try {
          await work();
        } finally {
          await holder.close();
        }
        expect(await queued()).to.equal(1);
      });

      it('finds a tally that an earlier transaction commits after later ones were aggregated', async () => {
        const holder = await Holder.hold(
          store,
          `insert into stat_tallies (txid, at, lane_id, queued)
          select pg_current_xact_id()::text::bigint, clock_timestamp(), 1, 7`,
        );
        await submitted(engine, {});
        await engine.services.statsAggregator.runOnce();
        expect([await tallies(), await queued()]).to.deep.equal([0, 1]);
        await holder.letGo();
        expect(await queued()).to.equal(8);
        expect((await engine.services.statsAggregator.runOnce())?.tallies).to.equal(1);
        expect([await tallies(), await queued()]).to.deep.equal([0, 8]);
      });
    }
  });
});

/** Counts the snapshots that are read from now on. */
function countReads(database: Database): { count: number } {
  const reads = { count: 0 };
  const query = database.query.bind(database) as Database['query'];
  database.query = (text, params, signal) => {
    if (/stat_totals/.test(text)) reads.count++;
    return query(text, params, signal);
  };
  return reads;
}

/**
 * The guarantee: events always find a partition, and old events are dropped a partition (a day) at a time.
 */
import { expect } from 'chai';
import { PartitionMaintainer } from '../../../src/engine/maintenance/partition-maintainer.ts';
import { createLog } from '../../../src/lib/log.ts';
import type { Database } from '../../../src/store/database.ts';
import { listEvents } from '../../../src/store/sql/events/find.ts';
import { daysAheadMax, readEventPartitions } from '../../../src/store/sql/events/partitions.ts';
import { lockAggregation } from '../../../src/store/sql/stats/aggregate.ts';
import { letJobsAge } from '../../support/age.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, silentLog, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, releaseFor, wipe } from '../../support/lease-helpers.ts';

const dateOf = (day: number) => new Date(day * 86_400_000).toISOString().slice(0, 10);

/** Leaves only partitions of the given days, counted from today. */
async function setDays(database: Database, days: readonly number[]): Promise<number> {
  const { today, parts } = await readEventPartitions(database);
  for (const { name } of parts) {
    await database.query(`alter table job_events detach partition ${name}`, []);
    await database.query(`drop table ${name}`, []);
  }
  for (const day of days) {
    const name = `job_events_d${dateOf(today + day).replaceAll('-', '')}`;
    await database.query(
      `create table ${name} (like job_events including defaults, primary key (job_id, event_id))`,
      [],
    );
    await database.query(
      `alter table job_events attach partition ${name}
      for values from ('${dateOf(today + day)} 00:00:00+00') to ('${dateOf(today + day + 1)} 00:00:00+00')`,
      [],
    );
  }
  return today;
}

/** The days that have a partition, counted from today. */
async function daysOf(database: Database): Promise<(number | null)[]> {
  const { today, parts } = await readEventPartitions(database);
  return parts.map(({ from }) => (from === null ? null : from - today));
}

const ahead = Array.from({ length: daysAheadMax + 1 }, (_, i) => i);

onEveryEngine((kind) => {
  describe('PartitionMaintainer', () => {
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

    beforeEach(async () => {
      await engine.prepare();
      await wipe(store.database);
    });

    it('creates partitions for more than a week before a server serves', async () => {
      await setDays(store.database, [2]);
      await engine.prepare();
      expect(await daysOf(store.database)).to.deep.equal(ahead);
      expect(engine.services.partitionMaintainer.daysAhead).to.equal(daysAheadMax);
      await engine.prepare();
      expect(await daysOf(store.database)).to.deep.equal(ahead);
    });

    it('creates a missing partition when a call writes, alone or concurrently', async () => {
      await setDays(store.database, [-31]);
      await submitted(engine, ...Array.from({ length: 20 }, () => ({})));
      const [job] = await engine.jobs.claim({ worker_id: 'w' }, caller);
      expect((await engine.jobs.events(job?.jobId ?? '', {}, caller)).items).to.have.length(2);
      await setDays(store.database, [-31]);
      const others = engineOn(store.database);
      const claims = await Promise.all(
        Array.from({ length: 18 }, (_, i) =>
          (i % 2 === 0 ? engine : others).jobs.claim({ worker_id: `w${i}` }, caller),
        ),
      );
      await others.stop();
      expect(new Set(claims.flat().map(({ jobId }) => jobId))).to.have.property('size', 18);
      // The partition is missing in the middle of a transaction of several statements.
      await setDays(store.database, [-31]);
      const grant = await acquired(engine);
      await setDays(store.database, [-31]);
      await engine.leases.release(releaseFor(grant), caller);
      const { items } = await engine.jobs.events(grant.job.jobId, {}, caller);
      expect(items.map(({ type }) => type)).to.include('JOB_DONE');
      expect(await daysOf(store.database)).to.deep.equal([-31, ...ahead]);
    });

    // The embedded engine runs one transaction at a time.
    if (kind.name === 'postgresql')
      it('creates partitions while statistics are aggregated', async () => {
        await setDays(store.database, [0]);
        await store.database.transaction(async (sql) => {
          expect(await lockAggregation(sql)).to.equal(true);
          await engine.services.partitionMaintainer.runOnce();
        });
        expect(await daysOf(store.database)).to.deep.equal(ahead);
      });

    it("drops a day's partition once the whole day is too old", async () => {
      const today = await setDays(store.database, [-32, -31, -30, -29, -1, 0]);
      const keeper = (days: number) =>
        new PartitionMaintainer({ database: store.database, days, log: silentLog }).runOnce();
      expect(await keeper(0)).to.deep.equal([]);
      const names = [-32, -31].map((day) => `job_events_d${dateOf(today + day).replaceAll('-', '')}`);
      expect(await keeper(30)).to.deep.equal(names);
      expect(await daysOf(store.database)).to.deep.equal([-30, -29, -1, ...ahead]);
      expect(await keeper(30)).to.deep.equal([]);
    });

    it('drops a partition that an earlier round detached', async () => {
      const today = await setDays(store.database, [-40, 0]);
      const name = `job_events_d${dateOf(today - 40).replaceAll('-', '')}`;
      await store.database.query(`alter table job_events detach partition ${name}`, []);
      expect(await engine.services.partitionMaintainer.runOnce()).to.deep.equal([name]);
      expect(await daysOf(store.database)).to.deep.equal(ahead);
    });

    it("reads a job's events from all its days, also after the oldest partition is dropped", async () => {
      await setDays(store.database, [-3, -2, -1, 0, 1]);
      await submitted(engine, {});
      const grant = await acquired(engine);
      const { jobId } = grant.job;
      await store.database.query("update job_events set at = at - interval '2 days'", []);
      await store.database.query("update jobs set created_at = created_at - interval '2 days'", []);
      await engine.leases.release(releaseFor(grant), caller);
      const types = async () => (await engine.jobs.events(jobId, {}, caller)).items.map(({ type }) => type);
      const ends = ['JOB_RUNNING', 'LEASE_RELEASED', 'JOB_DONE'];
      expect(await types()).to.deep.equal(['JOB_SUBMITTED', 'LEASE_GRANTED', ...ends]);
      const [submission] = (await engine.jobs.events(jobId, { limit: 1 }, caller)).items;
      const next = await engine.jobs.events(jobId, { cursor: submission?.eventId ?? '' }, caller);
      expect(next.items.map(({ type }) => type)).to.deep.equal(['LEASE_GRANTED', ...ends]);
      await new PartitionMaintainer({ database: store.database, days: 1, log: silentLog }).runOnce();
      // The job's own row still yields its submission.
      expect(await types()).to.deep.equal(['JOB_SUBMITTED', ...ends]);
    });

    it('reads only the partitions of the days in which the job lived', async () => {
      await setDays(store.database, [-20, -19, -10, -9, -8, -3, 0]);
      await submitted(engine, {});
      const grant = await acquired(engine);
      await engine.leases.release(releaseFor(grant), caller);
      const [jobId = ''] = await letJobsAge(store.database, [grant.job.jobId], 9);
      for (const { name } of (await readEventPartitions(store.database)).parts)
        await store.database.query(`analyze ${name}`, []);
      const found = await engine.jobs.get(jobId, caller);
      const opened = await store.database.transaction(async (sql) => {
        const scans = () =>
          sql.query<{ name: string; n: number }>(
            `select relname::text as name, (seq_scan + idx_scan)::int as n from pg_stat_xact_user_tables
            where relname like 'job\\_events\\_d%' order by relname`,
            [],
          );
        const before = await scans();
        expect(await listEvents(sql, found, '0', 100)).to.have.length.above(2);
        return (await scans()).filter(({ n }, i) => n > (before[i]?.n ?? 0));
      });
      // The job's day, and the days before and after it.
      expect(opened).to.have.length(3);
    });

    it('logs an error when it cannot create partitions, while some are left', async () => {
      await setDays(store.database, [0, 1]);
      const complaint = Promise.withResolvers<string>();
      const log = createLog({
        level: 'error',
        human: false,
        write: (line) => complaint.resolve((JSON.parse(line) as { msg: string }).msg),
      });
      // A view occupies the name of the next partition.
      const { today } = await readEventPartitions(store.database);
      const name = `job_events_d${dateOf(today + 2).replaceAll('-', '')}`;
      await store.database.query(`create view ${name} as select 1 as one`, []);
      const keeper = new PartitionMaintainer({ database: store.database, days: 30, log, firstMs: 1 });
      try {
        // A new server serves as long as partitions are left.
        await keeper.prepare();
        keeper.start();
        keeper.start();
        expect(await complaint.promise).to.equal('the history has room for few days more');
        expect(keeper.daysAhead).to.equal(1);
      } finally {
        await keeper.stop();
        await keeper.stop();
        await store.database.query(`drop view ${name}`, []);
      }
    });
  });
});

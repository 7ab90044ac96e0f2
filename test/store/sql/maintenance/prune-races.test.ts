/**
 * The guarantee: the pruner deletes old rows beside other transactions, which neither wait for it nor see a
 * job half deleted.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { PartitionMaintainer } from '../../../../src/engine/maintenance/partition-maintainer.ts';
import { isCancelled } from '../../../../src/store/connection/sql.ts';
import type { Database } from '../../../../src/store/database.ts';
import { openDatabase } from '../../../../src/store/open.ts';
import { readEventPartitions } from '../../../../src/store/sql/events/partitions.ts';
import {
  pendingWalks,
  pruneSlice,
  type Walk,
  wakeWalks,
  walks,
} from '../../../../src/store/sql/maintenance/prune.ts';
import { letJobsAge, multiplyEnded } from '../../../support/age.ts';
import { killed, nextLine, startFixture } from '../../../support/embedded-database.ts';
import { onEveryEngine, type TestDatabase, type TestStore } from '../../../support/engines.ts';
import { acquireFiles, granted } from '../../../support/file-lease-helpers.ts';
import { letFilesAge } from '../../../support/files.ts';
import { endedLeases } from '../../../support/history.ts';
import { caller, engineOn, silentLog, submitted, type TestedEngine } from '../../../support/jobs.ts';
import { acquired, beatFor, Holder, moreServers, releaseFor } from '../../../support/lease-helpers.ts';

const dayMs = 86_400_000;

/** Jobs with a lease each that ended so long ago that they may be deleted. */
async function endLongAgo(engine: TestedEngine, count: number, more = {}): Promise<void> {
  await submitted(engine, more);
  const grant = await acquired(engine);
  await engine.leases.release(releaseFor(grant), caller);
  await letJobsAge(engine.services.database, [grant.job.jobId], 40);
  if (count > 1) await multiplyEnded(engine.services.database, count - 1);
}

const walkNamed = (name: string): Walk => {
  const walk = walks.find((each) => each.name === name);
  if (!walk) throw new Error(`there is no walk of ${name}`);
  return walk;
};

/** Makes all walks due. */
async function ready(database: Database): Promise<void> {
  await pendingWalks(database, walks);
  await wakeWalks(database, walks);
}

/** Runs every operation of workers and submitters once. */
async function work(engine: TestedEngine): Promise<void> {
  const [job, other] = await submitted(engine, {}, { client_request_id: `${Math.random()}` });
  const grants = [await acquired(engine, 'w1'), await acquired(engine, 'w2')];
  for (const grant of grants) await Promise.all(await engine.leases.heartbeatEach([beatFor(grant)]));
  for (const grant of grants) await engine.leases.release(releaseFor(grant), caller);
  await engine.jobs.cancel((await submitted(engine, {}))[0]?.jobId ?? '', {}, caller);
  for (const each of [job, other]) await engine.jobs.events(each?.jobId ?? '', {}, caller);
  await engine.jobs.list({ limit: 5 }, caller);
}

/** Counts the sessions that wait for the given ones, repeatedly until `stop`. */
async function watchWaiters(store: TestStore, sessions: string): Promise<{ stop(): Promise<number> }> {
  const watcher = await Holder.hold(store, 'set transaction isolation level read committed');
  let looking = true;
  let seen = 0;
  const watching = (async () => {
    while (looking) {
      const [row] = await watcher.query<{ n: number }>(
        `select count(*)::int as n, pg_stat_clear_snapshot() from pg_stat_activity
        where datname = current_database() and pg_blocking_pids(pid) && array(${sessions})`,
      );
      seen += row?.n ?? 0;
      await delay(5);
    }
  })();
  return {
    async stop() {
      looking = false;
      await watching;
      await watcher.letGo();
      return seen;
    },
  };
}

onEveryEngine((kind) => {
  describe('pruning', () => {
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

    it('leaves every job complete or deleted when the process is killed during a slice', async () => {
      await endLongAgo(engine, 1_500);
      await ready(store.database);
      const { url, dataDir } = store.options;
      await engine.stop();
      await store.database.close();
      const child = startFixture('prune-until-killed', JSON.stringify({ url, dataDir }));
      expect(await nextLine(child)).to.equal('ready');
      child.process.stdin.write('one\n');
      expect(await nextLine(child)).to.equal('done');
      child.process.stdin.write('another\n');
      await delay(randomInt(15));
      await killed(child);
      const database = await openDatabase(store.options);
      try {
        const left = async () => {
          const [row] = await database.query<Record<string, number>>(
            `select (select count(*)::int from jobs) as jobs, (select count(*)::int from job_outcomes) as outcomes,
              (select count(*)::int from ${endedLeases}) as leases, (select count(*)::int from jobs job
                join job_outcomes outcome on outcome.job_id = job.job_id
                where outcome.fence is not null) as whole`,
            [],
          );
          return row ?? {};
        };
        const { jobs = 0, ...others } = await left();
        expect(jobs).to.be.oneOf([500, 1_000]);
        expect(others).to.deep.equal({ outcomes: jobs, leases: jobs, whole: jobs });
        const next = engineOn(database);
        expect(await next.services.pruner.runOnce()).to.equal(jobs);
        await next.stop();
        expect(await left()).to.deep.equal({ jobs: 0, outcomes: 0, leases: 0, whole: 0 });
      } finally {
        await database.close();
      }
    }).timeout(60_000);

    if (kind.name !== 'postgresql') return;

    it('delays no other call, even while its transaction stays open', async () => {
      await endLongAgo(engine, 50, {});
      await endLongAgo(engine, 1, { client_request_id: 'old' });
      await granted(engine, 'ann', 'old.ts');
      await engine.files.endOwner('ann', caller);
      await letFilesAge(store.database, 31 * dayMs);
      await ready(store.database);
      const { engines, stop } = await moreServers(store, 1);
      const [other] = engines as [TestedEngine];
      try {
        let late: Promise<unknown> | undefined;
        await store.database.transaction(async (sql) => {
          for (const walk of walks) await pruneSlice(sql, walk, 30);
          const [session] = await sql.query<{ pid: number }>('select pg_backend_pid() as pid', []);
          const [left] = await sql.query<{ n: number }>('select count(*)::int as n from job_outcomes', []);
          expect(left?.n).to.equal(0);
          const sessions = `select ${session?.pid}`;
          const watch = await watchWaiters(store, sessions);
          for (let round = 0; round < 10; round++) await work(other);
          await granted(other, 'bob', 'new.ts');
          // Another server skips the walk, because it is in progress.
          expect(await pruneSlice(other.services.database, walkNamed('jobs'), 30)).to.equal(undefined);
          expect(await watch.stop(), 'who waited').to.equal(0);
          // Only calls on the very rows that are being deleted wait for the outcome.
          const control = await watchWaiters(store, sessions);
          late = Promise.all([
            submitted(other, { client_request_id: 'old' }),
            acquireFiles(other, 'eve', 'old.ts'),
          ]);
          late.catch(() => {});
          const holder = await Holder.hold(store, 'select 1');
          await holder.untilWaiting(2);
          await holder.letGo();
          expect(await control.stop(), 'who waited for the very same').to.be.above(0);
        });
        await late;
      } finally {
        await stop();
      }
    });

    it('deletes each job once when several servers prune, without conflicts', async () => {
      await endLongAgo(engine, 2_000);
      await ready(store.database);
      const { engines, stop } = await moreServers(store, 3);
      try {
        const all = [engine, ...engines];
        const pruned = await Promise.all(all.map(({ services }) => services.pruner.runOnce()));
        const rest = await engine.services.pruner.runOnce();
        expect(pruned.reduce((sum, count) => sum + count, rest)).to.equal(2_000);
      } finally {
        await stop();
      }
    });

    it('skips locked rows, and deletes them the next time', async () => {
      await endLongAgo(engine, 10);
      const holder = await Holder.hold(store, 'select from job_outcomes order by job_id limit 3 for update');
      expect(await engine.services.pruner.runOnce()).to.equal(7);
      await holder.letGo();
      expect(await engine.services.pruner.runOnce()).to.equal(3);
    });

    it('keeps a partition while an old snapshot reads it, and delays no other call', async () => {
      const { database } = store;
      const { parts } = await readEventPartitions(database);
      const old = 'job_events_d20200101';
      for (const { name, from } of parts.filter(({ from }, i) => from === null || i > 5)) {
        await database.query(`alter table job_events detach partition ${name}`, []);
        if (from !== null) await database.query(`drop table ${name}`, []);
      }
      await database.query(
        `create table ${old} (like job_events including defaults, primary key (job_id, event_id))`,
        [],
      );
      await database.query(
        `alter table job_events attach partition ${old} for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00')`,
        [],
      );
      await database.query(
        "insert into job_events (at, job_id, type, actor) values ('2020-01-01 12:00:00+00', gen_random_uuid(), 0, 'a')",
        [],
      );
      const reader = await Holder.hold(store, 'set transaction isolation level repeatable read');
      const seen = async () =>
        (await reader.query<{ n: number }>('select count(*)::int as n from job_events'))[0]?.n;
      const before = await seen();
      const keeper = new PartitionMaintainer({ database, days: 30, log: silentLog, lockTimeoutMs: 1_000 });
      const { engines, stop } = await moreServers(store, 1);
      const [other] = engines as [TestedEngine];
      try {
        const watch = await watchWaiters(
          store,
          "select pid from pg_stat_activity where query like 'alter table job_events detach%'",
        );
        let waiting = true;
        const dropped = keeper.runOnce().catch((error: unknown) => error);
        void dropped.then(() => {
          waiting = false;
        });
        let rounds = 0;
        for (; waiting || rounds < 3; rounds++) await work(other);
        expect(isCancelled(await dropped), String(await dropped)).to.equal(true);
        expect(await watch.stop(), 'who waited').to.equal(0);
        // The detach is interrupted halfway. Events are still written, and partitions are still created.
        const left = await readEventPartitions(database);
        expect(left.parts.find(({ name }) => name === old)).to.include({ attached: true, pending: true });
        await other.prepare();
        await work(other);
        expect(await seen()).to.equal(before);
        await reader.letGo();
        const patient = new PartitionMaintainer({
          database,
          days: 30,
          log: silentLog,
          lockTimeoutMs: 20_000,
        });
        expect(await patient.runOnce()).to.include(old);
        const kept = (await readEventPartitions(database)).parts.map(({ name }) => name);
        expect(kept).to.not.include(old);
      } finally {
        await stop();
      }
    }).timeout(30_000);
  });
});

import { expect } from 'chai';
import type { Grant, Verdict } from '../../../src/domain/leases/lease.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { compensateOutage, recordLife } from '../../../src/store/sql/outages.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { failure } from '../../support/failure.ts';
import {
  caller,
  engineOn,
  engineSettings,
  letTimePass,
  submitted,
  type TestedEngine,
} from '../../support/jobs.ts';
import {
  acquired,
  beatFor,
  claimedAndLeased,
  Holder,
  moreServers,
  noServerFor,
  releaseFor,
  wipe,
} from '../../support/lease-helpers.ts';
import { outageForEach } from '../../support/outages.ts';
import { startPostgres } from '../../support/postgres.ts';
import { eventually } from '../../support/server.ts';

const claimTtlMs = engineSettings.claimTtlS * 1000;

interface Outage {
  ms: number;
  leases: number;
  open: boolean;
}

describe('OutageMonitor', () => {
  onEveryEngine((kind) => {
    const stage = outageForEach(kind, wipe);
    const { newServer } = stage;
    let store: TestDatabase;
    let alive: TestedEngine;
    beforeEach(() => {
      ({ store, alive } = stage);
    });

    const silence = (ms: number) => noServerFor(store.database, ms);

    const outages = () =>
      store.database.query<Outage>(
        `select round(extract(epoch from ended_at - began_at) * 1000)::int as ms, leases_extended as leases,
          next_lease_id is not null as open from outages order by outage_id`,
        [],
      );

    /** The time until each lease expires. */
    const left = async () => {
      const rows = await store.database.query<{ ms: number }>(
        `select extract(epoch from expires_at - clock_timestamp())::float8 * 1000 as ms
        from live_jobs where lease_token is not null order by seq`,
        [],
      );
      return rows.map(({ ms }) => ms);
    };

    it('extends every lease by the outage before any is expired', async () => {
      await submitted(alive, {}, {});
      const fresh = await acquired(alive, 'fresh');
      await letTimePass(store.database, 30_000);
      await acquired(alive, 'fresher');
      await silence(100_000);
      const engine = newServer();
      expect(await engine.services.reaper.runOnce()).to.equal(0);
      const [first, second] = await left();
      // At least what was left when the outage began, however slow this machine is.
      expect(first).to.be.within(20_000, 30_000);
      expect(second).to.be.within(50_000, 60_000);
      const [verdict] = await engine.leases.heartbeatMany([beatFor(fresh)]);
      expect(verdict?.kind).to.equal('extended');
      const [recorded, ...more] = await outages();
      expect(more).to.deep.equal([]);
      expect(recorded).to.include({ leases: 2, open: false });
      expect(recorded?.ms).to.be.within(100_000, 110_000);
    });

    it('compensates an outage before a heartbeat is decided', async () => {
      await submitted(alive, {});
      const grant = await acquired(alive);
      await silence(3_600_000);
      const [verdict] = await newServer().services.heartbeats.heartbeatMany([beatFor(grant)]);
      expect(verdict).to.include({ kind: 'extended', ttlRemainingMs: 60_000 });
    });

    it('detects an outage on a stalled server whose own record seems fresh', async () => {
      await submitted(alive, {}, {});
      const [kept, released] = [await acquired(alive, 'a'), await acquired(alive, 'b')];
      for (const judges of ['the reaper', 'a sign of life', 'a release'] as const) {
        await alive.services.outageMonitor.runOnce();
        await silence(100_000);
        if (judges === 'the reaper') expect(await alive.services.reaper.runOnce()).to.equal(0);
        if (judges === 'a sign of life') {
          const [verdict] = await alive.leases.heartbeatMany([beatFor(kept)]);
          expect(verdict?.kind).to.equal('extended');
        }
        if (judges === 'a release') {
          const { job } = await alive.leases.release(releaseFor(released), caller);
          expect(job.state).to.equal('DONE');
        }
        for (const ms of await left()) expect(ms, `left, when ${judges} came`).to.be.above(20_000);
      }
    });

    it('publishes the jobs that the reaper made ready although the outage cannot be written', async () => {
      const runAt = new Date(Date.now() + 30_000).toISOString();
      const [, delayed] = await submitted(alive, {}, { run_at: runAt });
      await acquired(alive);
      await silence(100_000);
      const { outageMonitor, notifier, reaper } = alive.services;
      const failed = new Error('the database cannot be reached');
      outageMonitor.runOnce = () => Promise.reject(failed);
      let ready = 0;
      notifier.onWork(({ jobs }) => {
        ready += jobs.get('') ?? 0;
      });
      expect(await failure(reaper.runOnce())).to.equal(failed);
      expect((await alive.jobs.get(delayed?.jobId ?? '', caller)).job.nextRetryAtMs).to.equal(null);
      expect(ready).to.equal(1);
    });

    it('compensates an outage once: a lease without heartbeats afterwards expires', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await silence(100_000);
      const engine = newServer();
      await engine.prepare();
      await newServer().prepare();
      await letTimePass(store.database, 60_001);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      expect(await outages()).to.have.length(1);
    });

    it('extends a lease to no more than its TTL plus the grace', async () => {
      const settings = { ...engineSettings, leaseTtlS: 20, heartbeatGraceS: 5 };
      const patient = newServer(settings);
      await submitted(patient, {}, {});
      await acquired(patient);
      await claimedAndLeased(patient, 'w', { ttl_sec: 100 });
      await silence(3_600_000);
      await newServer(settings).prepare();
      const [short, long] = await left();
      expect(short).to.be.within(15_000, 25_000);
      expect(long).to.be.within(95_000, 105_000);
    });

    it('shortens no lease when the grace is shorter than before', async () => {
      const patient = newServer({ ...engineSettings, leaseTtlS: 10, heartbeatGraceS: 50 });
      await submitted(patient, {});
      await acquired(patient);
      await silence(4_000);
      await newServer({ ...engineSettings, leaseTtlS: 10, heartbeatGraceS: 0 }).prepare();
      const [ms] = await left();
      expect(ms).to.be.above(45_000);
    });

    it('lets no job run longer than max_runtime_s', async () => {
      await submitted(alive, { max_runtime_s: 70 });
      await acquired(alive);
      await letTimePass(store.database, 15_000);
      await silence(100_000);
      const engine = newServer();
      expect(await engine.services.reaper.runOnce()).to.equal(1);
    });

    it('does not extend leases that expired before the outage', async () => {
      await submitted(alive, {}, {});
      await acquired(alive);
      await letTimePass(store.database, 61_000);
      await acquired(alive);
      await silence(30_000);
      expect(await newServer().services.reaper.runOnce()).to.equal(1);
      expect(await outages()).to.have.nested.property('[0].leases', 1);
    });

    it('does not extend leases that were granted or renewed after the outage', async () => {
      await submitted(alive, {}, {});
      const kept = await acquired(alive);
      await silence(50_000);
      const engine = newServer();
      // The outage is recorded, and no lease is extended yet.
      await recordLife(store.database);
      // The embedded engine's clock counts in milliseconds, so the next statement may have the same time.
      await store.database.query(
        `update live_jobs set last_heartbeat_at = ended_at + interval '1 ms', expires_at = ended_at + interval '60 s'
        from outages where lease_id = $1`,
        [kept.lease.leaseId],
      );
      await acquired(engine);
      for (const ms of await left()) expect(ms).to.be.at.most(60_000);
      expect(await outages()).to.have.nested.property('[0].leases', 0);
    });

    it('records no outage while another server is alive, however long one was silent', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await letTimePass(store.database, 60_001);
      // The new server has just recorded its life. `alive` has been silent all the time.
      expect(await newServer().services.reaper.runOnce()).to.equal(1);
      expect(await outages()).to.deep.equal([]);
    });

    it('records no outage within the permitted silence or without an active lease', async () => {
      await submitted(alive, {});
      await silence(3_600_000);
      await newServer().prepare();
      expect(await outages()).to.deep.equal([]);
      await acquired(alive);
      await silence(2_000);
      await newServer().services.outageMonitor.runOnce();
      expect(await outages()).to.deep.equal([]);
      await silence(3_500);
      await newServer().services.outageMonitor.runOnce();
      expect(await outages()).to.have.length(1);
    });

    it('detects an outage after a shorter silence when a server starts', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await silence(600);
      await newServer().prepare();
      expect(await outages()).to.deep.equal([]);
      await silence(1_500);
      await newServer().prepare();
      expect(await outages()).to.have.length(1);
    });

    it('compensates in slices, and another server continues after a kill', async () => {
      await submitted(alive, ...Array.from({ length: 7 }, () => ({})));
      for (let i = 0; i < 7; i++) await acquired(alive, `w${i}`);
      await silence(100_000);
      // A server detects the outage, compensates one slice, and is killed.
      expect((await recordLife(store.database)).unfinished).to.equal(true);
      expect(await compensateOutage(store.database, 3, claimTtlMs)).to.deep.equal({
        done: false,
        leasesExtended: 3,
      });
      expect((await left()).map((ms) => ms > 0)).to.deep.equal([true, true, true, ...Array(4).fill(false)]);
      const halfway = await left();
      expect(await newServer().services.reaper.runOnce()).to.equal(0);
      const after = await left();
      expect(after.every((ms) => ms > 0)).to.equal(true);
      for (const i of [0, 1, 2]) expect(after[i], 'twice').to.be.below(halfway[i] as number);
      expect(await outages()).to.have.length(1);
      expect((await outages())[0]).to.include({ leases: 7, open: false });
    });

    it('compensates several outages one after the other', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await silence(20_000);
      await recordLife(store.database);
      await silence(20_000);
      await newServer().prepare();
      const [ms] = await left();
      expect(ms).to.be.within(50_000, 60_000);
      expect((await outages()).map(({ open }) => open)).to.deep.equal([false, false]);
    });

    if (kind.name === 'postgresql') {
      it('records one outage when two servers start at once, and both see it unfinished', async () => {
        await submitted(alive, {}, {}, {});
        for (let i = 0; i < 3; i++) await acquired(alive, `w${i}`);
        const { engines, stop } = await moreServers(store, 2);
        try {
          await silence(100_000);
          // Both statements start before either knows of the outage.
          const pulse = await Holder.hold(store, 'select from pulse for update');
          const beats = engines.map(({ services }) => recordLife(services.database));
          await pulse.untilWaiting(2);
          await pulse.letGo();
          const told = await Promise.all(beats);
          expect(told.map(({ outageMs }) => outageMs !== null)).to.have.members([true, false]);
          expect(told.map(({ unfinished }) => unfinished)).to.deep.equal([true, true]);
          const reaped = await Promise.all(engines.map((engine) => engine.services.reaper.runOnce()));
          expect(reaped).to.deep.equal([0, 0]);
          expect(await outages()).to.have.length(1);
          for (const ms of await left()) expect(ms).to.be.within(40_000, 60_000);
        } finally {
          await stop();
        }
      });

      it('compensates once when several servers extend slices at the same time', async () => {
        const leases = 200;
        const { engines, stop } = await moreServers(store, 4, { ...engineSettings, capacityTotal: leases });
        try {
          const [first] = engines as [TestedEngine];
          await submitted(first, ...Array.from({ length: leases }, () => ({})));
          await Promise.all(Array.from({ length: leases }, (_, i) => acquired(first, `w${i}`)));
          await silence(100_000);
          await recordLife(store.database);
          const work = async ({ services: { database } }: TestedEngine) => {
            while (await compensateOutage(database, 7, claimTtlMs)) {
              // Continues until no lease is left to extend.
            }
          };
          await Promise.all(engines.map(work));
          expect(await outages()).to.have.length(1);
          expect((await outages())[0]).to.include({ leases, open: false });
          for (const ms of await left()) expect(ms).to.be.within(30_000, 60_000);
        } finally {
          await stop();
        }
      });

      it('compensates an outage of the database before it decides heartbeats', async () => {
        const cluster = await startPostgres({ durable: false });
        const name = await cluster.createDatabase();
        const options = { ...store.options, url: cluster.url(name) };
        const migrator = await openDatabase(options);
        await migrate(migrator);
        const engine = engineOn(migrator, { ...engineSettings, leaseTtlS: 2 });
        try {
          await submitted(engine, {}, {});
          const grants: Grant[] = [await acquired(engine, 'a'), await acquired(engine, 'b')];
          engine.start();
          await cluster.kill();
          const down = performance.now();
          await eventually('the leases would be over', async () =>
            performance.now() - down > 3_600 ? true : undefined,
          );
          await cluster.restart();
          const verdicts = await eventually('the database answers', () =>
            engine.leases.heartbeatMany(grants.map((grant) => beatFor(grant))).catch(() => undefined),
          );
          expect(verdicts.map((verdict: Verdict) => verdict.kind)).to.deep.equal(['extended', 'extended']);
          const rows = await migrator.query<Outage>('select leases_extended as leases from outages', []);
          expect(rows).to.deep.equal([{ leases: 2 }]);
        } finally {
          await engine.stop();
          await migrator.close();
          await cluster.stop();
        }
      });
    }
  });
});

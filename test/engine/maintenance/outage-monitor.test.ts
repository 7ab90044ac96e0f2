import { expect } from 'chai';
import type { Grant, Verdict } from '../../../src/domain/leases/lease.ts';
import type { Engine } from '../../../src/engine/engine.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { compensateOutage, recordLife } from '../../../src/store/sql/outages.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, engineSettings, letTimePass, submitted } from '../../support/jobs.ts';
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
import { startPostgres } from '../../support/postgres.ts';
import { eventually } from '../../support/server.ts';

const claimTtlMs = engineSettings.claimTtlS * 1000;

interface Outage {
  ms: number;
  leases: number;
  open: boolean;
}

describe('an outage', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    /** The server that was alive before. */
    let alive: Engine;
    const later: Engine[] = [];
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());
    beforeEach(async () => {
      await wipe(store.database);
      alive = engineOn(store.database);
      await alive.prepare();
    });
    afterEach(async () => {
      for (const engine of [alive, ...later.splice(0)]) await engine.stop();
    });

    /** A server that is started now, and has not yet looked at anything. */
    const newServer = (settings = engineSettings): Engine => {
      const engine = engineOn(store.database, settings);
      later.push(engine);
      return engine;
    };

    const silence = (ms: number) => noServerFor(store.database, ms);

    const outages = () =>
      store.database.query<Outage>(
        `select round(extract(epoch from ended_at - began_at) * 1000)::int as ms, leases_extended as leases,
          next_lease_id is not null as open from outages order by outage_id`,
        [],
      );

    /** How long each lease lasts from now. */
    const left = async () => {
      const rows = await store.database.query<{ ms: number }>(
        `select extract(epoch from expires_at - clock_timestamp())::float8 * 1000 as ms
        from live_jobs where lease_token is not null order by seq`,
        [],
      );
      return rows.map(({ ms }) => ms);
    };

    it('gives every lease back what it took, before anything is expired', async () => {
      await submitted(alive, {}, {});
      const fresh = await acquired(alive, 'fresh');
      await letTimePass(store.database, 30_000);
      await acquired(alive, 'fresher');
      await silence(100_000);
      const engine = newServer();
      expect(await engine.reaper.runOnce()).to.equal(0);
      const [first, second] = await left();
      // As much as they had when it began, however slow this machine is.
      expect(first).to.be.within(20_000, 30_000);
      expect(second).to.be.within(50_000, 60_000);
      const [verdict] = await engine.heartbeats.heartbeatMany([beatFor(fresh)]);
      expect(verdict?.kind).to.equal('extended');
      const [recorded, ...more] = await outages();
      expect(more).to.deep.equal([]);
      expect(recorded).to.include({ leases: 2, open: false });
      expect(recorded?.ms).to.be.within(100_000, 110_000);
    });

    it('is made up for before a sign of life is judged', async () => {
      await submitted(alive, {});
      const grant = await acquired(alive);
      await silence(3_600_000);
      const [verdict] = await newServer().heartbeats.heartbeatMany([beatFor(grant)]);
      expect(verdict).to.include({ kind: 'extended', ttlRemainingMs: 60_000 });
    });

    it('is noticed by a server that stood still itself, and whose own pulse seems fresh', async () => {
      await submitted(alive, {}, {});
      const [kept, released] = [await acquired(alive, 'a'), await acquired(alive, 'b')];
      for (const judges of ['the reaper', 'a sign of life', 'a release'] as const) {
        await alive.outageMonitor.runOnce();
        await silence(100_000);
        if (judges === 'the reaper') expect(await alive.reaper.runOnce()).to.equal(0);
        if (judges === 'a sign of life') {
          const [verdict] = await alive.heartbeats.heartbeatMany([beatFor(kept)]);
          expect(verdict?.kind).to.equal('extended');
        }
        if (judges === 'a release') {
          const { job } = await alive.releaser.release(releaseFor(released), caller);
          expect(job.state).to.equal('DONE');
        }
        for (const ms of await left()) expect(ms, `left, when ${judges} came`).to.be.above(20_000);
      }
    });

    it('is made up for once: who stays silent after it is expired', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await silence(100_000);
      const engine = newServer();
      await engine.prepare();
      await newServer().prepare();
      await letTimePass(store.database, 60_001);
      expect(await engine.reaper.runOnce()).to.equal(1);
      expect(await outages()).to.have.length(1);
    });

    it('gives no more than a sign of life at its end would have: the time to live and the grace', async () => {
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

    it('takes nothing away where the grace is shorter than it was', async () => {
      const patient = newServer({ ...engineSettings, leaseTtlS: 10, heartbeatGraceS: 50 });
      await submitted(patient, {});
      await acquired(patient);
      await silence(4_000);
      await newServer({ ...engineSettings, leaseTtlS: 10, heartbeatGraceS: 0 }).prepare();
      const [ms] = await left();
      expect(ms).to.be.above(45_000);
    });

    it('makes no job run longer than it may', async () => {
      await submitted(alive, { max_runtime_s: 70 });
      await acquired(alive);
      await letTimePass(store.database, 15_000);
      await silence(100_000);
      const engine = newServer();
      expect(await engine.reaper.runOnce()).to.equal(1);
    });

    it('gives nothing to leases that had run out before it began', async () => {
      await submitted(alive, {}, {});
      await acquired(alive);
      await letTimePass(store.database, 61_000);
      await acquired(alive);
      await silence(30_000);
      expect(await newServer().reaper.runOnce()).to.equal(1);
      expect(await outages()).to.have.nested.property('[0].leases', 1);
    });

    it('gives nothing to leases that were granted or kept after it', async () => {
      await submitted(alive, {}, {});
      const kept = await acquired(alive);
      await silence(50_000);
      const engine = newServer();
      // The outage has been found, and nobody has got further.
      await recordLife(store.database);
      // The embedded engine's clock knows no less than a millisecond, so what comes right after may come at the same time.
      await store.database.query(
        `update live_jobs set last_heartbeat_at = ended_at + interval '1 ms', expires_at = ended_at + interval '60 s'
        from outages where lease_id = $1`,
        [kept.lease.leaseId],
      );
      await acquired(engine);
      for (const ms of await left()) expect(ms).to.be.at.most(60_000);
      expect(await outages()).to.have.nested.property('[0].leases', 0);
    });

    it('is none while another server is alive, however long one was away', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await letTimePass(store.database, 60_001);
      // Its heart has beaten just now; `alive` itself has been silent all the while.
      expect(await newServer().reaper.runOnce()).to.equal(1);
      expect(await outages()).to.deep.equal([]);
    });

    it('is none where it was no longer than a server may be silent, and not recorded where nobody held a lease', async () => {
      await submitted(alive, {});
      await silence(3_600_000);
      await newServer().prepare();
      expect(await outages()).to.deep.equal([]);
      await acquired(alive);
      await silence(2_000);
      await newServer().outageMonitor.runOnce();
      expect(await outages()).to.deep.equal([]);
      await silence(3_500);
      await newServer().outageMonitor.runOnce();
      expect(await outages()).to.have.length(1);
    });

    it('is found sooner by a server that starts: another would have written the time a moment ago', async () => {
      await submitted(alive, {});
      await acquired(alive);
      await silence(600);
      await newServer().prepare();
      expect(await outages()).to.deep.equal([]);
      await silence(1_500);
      await newServer().prepare();
      expect(await outages()).to.have.length(1);
    });

    it('is made up for in slices, and another server goes on where one was killed', async () => {
      await submitted(alive, ...Array.from({ length: 7 }, () => ({})));
      for (let i = 0; i < 7; i++) await acquired(alive, `w${i}`);
      await silence(100_000);
      // A server finds it, makes up for a slice, and is killed.
      expect((await recordLife(store.database)).unfinished).to.equal(true);
      expect(await compensateOutage(store.database, 3, claimTtlMs)).to.deep.equal({
        done: false,
        leasesExtended: 3,
      });
      expect((await left()).map((ms) => ms > 0)).to.deep.equal([true, true, true, ...Array(4).fill(false)]);
      const halfway = await left();
      expect(await newServer().reaper.runOnce()).to.equal(0);
      const after = await left();
      expect(after.every((ms) => ms > 0)).to.equal(true);
      for (const i of [0, 1, 2]) expect(after[i], 'twice').to.be.below(halfway[i] as number);
      expect(await outages()).to.have.length(1);
      expect((await outages())[0]).to.include({ leases: 7, open: false });
    });

    it('of several is made up for one after the other', async () => {
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
      it('is found by one of two servers that start at once, and both know that it is not made up for yet', async () => {
        await submitted(alive, {}, {}, {});
        for (let i = 0; i < 3; i++) await acquired(alive, `w${i}`);
        const { engines, stop } = await moreServers(store, 2);
        try {
          await silence(100_000);
          // Both ask before either knows.
          const pulse = await Holder.hold(store, 'select from pulse for update');
          const beats = engines.map(({ database }) => recordLife(database));
          await pulse.untilWaiting(2);
          await pulse.letGo();
          const told = await Promise.all(beats);
          expect(told.map(({ outageMs }) => outageMs !== null)).to.have.members([true, false]);
          expect(told.map(({ unfinished }) => unfinished)).to.deep.equal([true, true]);
          const reaped = await Promise.all(engines.map((engine) => engine.reaper.runOnce()));
          expect(reaped).to.deep.equal([0, 0]);
          expect(await outages()).to.have.length(1);
          for (const ms of await left()) expect(ms).to.be.within(40_000, 60_000);
        } finally {
          await stop();
        }
      });

      it('is made up for once by servers that do it at the same time, slice by slice', async () => {
        const leases = 200;
        const { engines, stop } = await moreServers(store, 4, { ...engineSettings, capacityTotal: leases });
        try {
          const [first] = engines as [Engine];
          await submitted(first, ...Array.from({ length: leases }, () => ({})));
          await Promise.all(Array.from({ length: leases }, (_, i) => acquired(first, `w${i}`)));
          await silence(100_000);
          await recordLife(store.database);
          const work = async ({ database }: Engine) => {
            while (await compensateOutage(database, 7, claimTtlMs)) {
              // Until there is nothing left to be made up for.
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

      it('of the database is made up for before anybody is heard again', async () => {
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
            engine.heartbeats.heartbeatMany(grants.map((grant) => beatFor(grant))).catch(() => undefined),
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

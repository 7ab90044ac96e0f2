import { expect } from 'chai';
import type { Job } from '../../../src/domain/jobs/job.ts';
import { compensateOutage, recordLife } from '../../../src/store/sql/outages.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineSettings, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, beatFor, Holder, moreServers, noServerFor, wipe } from '../../support/lease-helpers.ts';
import { outageForEach } from '../../support/outages.ts';

const claimTtlMs = engineSettings.claimTtlS * 1000;

describe('claims in an outage', () => {
  onEveryEngine((kind) => {
    const stage = outageForEach(kind, wipe);
    const { newServer } = stage;
    let store: TestDatabase;
    let alive: TestedEngine;
    beforeEach(() => {
      ({ store, alive } = stage);
    });

    const silence = (ms: number) => noServerFor(store.database, ms);

    /** Submits `count` jobs and claims them for a worker. */
    const claimed = async (count = 1, requestId: string | null = null): Promise<Job[]> => {
      await submitted(alive, ...Array.from({ length: count }, () => ({})));
      return alive.jobs.claim({ worker_id: 'w', limit: count, request_id: requestId }, caller);
    };

    interface Row {
      ms: number;
      lost: number;
      inStep: boolean;
    }

    /** The time left of each claim, and whether the reaper is scheduled for that moment. */
    const claims = async (): Promise<Row[]> =>
      store.database.query<Row>(
        `select extract(epoch from claim_expires_at - clock_timestamp())::float8 * 1000 as ms,
          claims_lost as lost, check_at = claim_expires_at as "inStep"
        from live_jobs where claimed_by is not null order by seq`,
        [],
      );

    it('extends claims by the outage before any of them expires', async () => {
      const [first] = await claimed(2);
      await alive.jobs.updateStatus(first?.jobId ?? '', { state: 'PREPARING' }, caller);
      await letTimePass(store.database, 20_000);
      await silence(100_000);
      expect(await newServer().services.reaper.runOnce()).to.equal(0);
      const rows = await claims();
      expect(rows).to.have.length(2);
      for (const { ms, lost, inStep } of rows) {
        // At least what was left when the outage began, however slow this machine is.
        expect(ms).to.be.within(25_000, 40_000);
        expect({ lost, inStep }).to.deep.equal({ lost: 0, inStep: true });
      }
      const outages = await store.database.query('select 1 as n from outages', []);
      expect(outages).to.have.length(1);
    });

    for (const [word, say] of [
      [
        'asks for its lease',
        (engine: TestedEngine, job_id: string) => engine.leases.request({ job_id }, caller),
      ],
      [
        'says a word on its state',
        (engine: TestedEngine, jobId: string) =>
          engine.jobs.updateStatus(jobId, { state: 'PREPARING' }, caller),
      ],
    ] as const) {
      it(`keeps a claim whose worker ${word} after the outage, on a new and on a stalled server`, async () => {
        const [first, second] = (await claimed(2)) as [Job, Job];
        await silence(100_000);
        await say(newServer(), first.jobId);
        await alive.services.outageMonitor.runOnce();
        await silence(100_000);
        await say(alive, second.jobId);
      });
    }

    it('repeats the claim to the same request_id after the outage', async () => {
      const [job] = await claimed(1, 'r');
      await silence(100_000);
      const again = await newServer().services.claimer.claim({ worker_id: 'w', request_id: 'r' }, caller);
      expect(again.map(({ jobId }) => jobId)).to.deep.equal([job?.jobId]);
    });

    it('extends a claim to no more than its full TTL', async () => {
      await claimed();
      await silence(3_600_000);
      await newServer().prepare();
      const [claim] = await claims();
      expect(claim?.ms).to.be.within(45_000, 60_000);
    });

    it('compensates an outage once: a claim without a call afterwards expires', async () => {
      await claimed();
      await silence(100_000);
      const engine = newServer();
      await engine.prepare();
      await newServer().prepare();
      await letTimePass(store.database, 60_001);
      expect(await engine.services.reaper.runOnce()).to.equal(1);
      expect(await claims()).to.deep.equal([]);
    });

    it('compensates claims after each of several outages', async () => {
      await claimed();
      await silence(20_000);
      await recordLife(store.database);
      await silence(20_000);
      await newServer().prepare();
      const [claim] = await claims();
      expect(claim?.ms).to.be.within(45_000, 60_000);
    });

    it('does not extend claims that expired before the outage or began after it', async () => {
      await claimed();
      await letTimePass(store.database, 60_500);
      await silence(100_000);
      await recordLife(store.database);
      const [fresh] = await claimed();
      const before = await claims();
      await newServer().prepare();
      const after = await claims();
      expect(before[0]?.ms).to.be.below(0);
      expect(after[0]?.ms).to.be.below(0);
      expect(after[1]?.ms).to.be.at.most(before[1]?.ms as number);
      expect(fresh?.state).to.equal('CLAIMED');
    });

    it('extends claims in slices, before leases, and the next server finishes the rest', async () => {
      await claimed(7);
      await submitted(alive, {});
      const grant = await acquired(alive, 'x');
      await silence(100_000);
      expect((await recordLife(store.database)).unfinished).to.equal(true);
      const slice = await compensateOutage(store.database, 3, claimTtlMs);
      expect(slice).to.deep.equal({ done: false, leasesExtended: 0 });
      const alikeWith = async () => (await claims()).slice(0, 7).filter(({ ms }) => ms > 0).length;
      expect(await alikeWith()).to.equal(3);
      const engine = newServer();
      expect(await engine.services.reaper.runOnce()).to.equal(0);
      expect(await alikeWith()).to.equal(7);
      const [verdict] = await engine.leases.heartbeatMany([beatFor(grant, { workerId: 'x' })]);
      expect(verdict?.kind).to.equal('extended');
    });

    if (kind.name === 'postgresql') {
      it('extends other claims while the row of one is locked', async () => {
        const [held] = (await claimed(2)) as [Job, Job];
        const { engines, stop } = await moreServers(store, 1);
        const [server] = engines as [TestedEngine];
        await silence(100_000);
        const holder = await Holder.holdJobs(store, [held.jobId]);
        try {
          await server.prepare();
          const rows = await claims();
          expect(rows.map(({ ms }) => ms > 0)).to.deep.equal([false, true]);
        } finally {
          await holder.letGo();
          await stop();
        }
      });

      it('compensates claims once when several servers do it at the same time', async () => {
        await claimed(100);
        const { engines, stop } = await moreServers(store, 4);
        try {
          await silence(30_000);
          await recordLife(store.database);
          const work = async ({ services: { database } }: TestedEngine) => {
            while (await compensateOutage(database, 7, claimTtlMs)) {
              // Continues until no claim is left to extend.
            }
          };
          await Promise.all(engines.map(work));
          for (const { ms, inStep } of await claims()) {
            expect(ms).to.be.within(45_000, 60_000);
            expect(inStep).to.equal(true);
          }
        } finally {
          await stop();
        }
      });
    }
  });
});

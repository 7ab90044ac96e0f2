import { expect } from 'chai';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import { openDatabase } from '../../../../src/store/open.ts';
import { onEveryEngine } from '../../../support/engines.ts';
import { caller, engineOn, engineSettings } from '../../../support/jobs.ts';
import { acquired, beatFor } from '../../../support/lease-helpers.ts';
import { eventually } from '../../../support/server.ts';
import { sessionsOver } from '../../../support/sessions.ts';

onEveryEngine((kind) => {
  // Connections report their statistics when they end, and the embedded database has only one.
  if (kind.name !== 'postgresql') return;

  describe('heartbeats of leases', () => {
    const check = (held: 'with a holder' | 'without a holder') => async () => {
      const holder = held === 'with a holder' ? 7 : null;
      const leases = 250;
      const rounds = 20;
      await using store = await kind.open();
      const settings = { ...engineSettings, capacityTotal: leases };

      interface Updates {
        all: number;
        hot: number;
      }
      const updates = async (atLeast: number): Promise<Updates> =>
        eventually(`${atLeast} updates have been told of`, async () => {
          const [row] = await store.database.query<Updates>(
            `select n_tup_upd::int as all, n_tup_hot_upd::int as hot from pg_stat_user_tables
            where relname = 'live_jobs'`,
            [],
          );
          return row && row.all >= atLeast ? row : undefined;
        });
      /** Runs work on a server that then closes, so that its connections report their statistics. */
      const during = <T>(work: (engine: ReturnType<typeof engineOn>) => Promise<T>): Promise<T> =>
        sessionsOver(store.database, async () => {
          // Marks a server as alive for the whole test, so that no outage is compensated.
          await store.database.query("update pulse set alive_at = clock_timestamp() + interval '1 hour'", []);
          const database = await openDatabase(store.options);
          const engine = engineOn(database, settings);
          try {
            return await work(engine);
          } finally {
            await engine.stop();
            await database.close();
          }
        });

      const grants = await during(async (engine) => {
        const drafts = Array.from({ length: leases }, () =>
          draft({ addon_id: 'a', job_type: 't', cost_units: 1 }, false, settings),
        );
        await engine.jobs.submitMany(drafts, caller);
        const grants = await Promise.all(drafts.map((_, i) => acquired(engine, `w${i}`)));
        await store.database.query('update live_jobs set holder = $1', [holder]);
        // The first heartbeat sets RUNNING, and the state is in an index. The first progress and message make
        // rows longer.
        for (let round = 0; round < 4; round++) {
          const words = round % 2 === 0 ? {} : { progress: 0.5, message: 'round 10' };
          await engine.leases.heartbeatMany(grants.map((grant) => beatFor(grant, { holder, ...words })));
        }
        return grants;
      });
      const before = await updates(6 * leases);
      await during(async (engine) => {
        for (let round = 0; round < rounds; round++) {
          const words = round % 2 === 0 ? {} : { progress: round / rounds, message: `round ${round % 10}` };
          const verdicts = await engine.leases.heartbeatMany(
            grants.map((grant) => beatFor(grant, { holder, ...words })),
          );
          expect(verdicts.every((verdict) => verdict.kind === 'extended')).to.equal(true);
        }
      });
      const after = await updates(before.all + leases * rounds);
      expect(after.all - before.all).to.equal(leases * rounds);
      expect(after.hot - before.hot).to.equal(leases * rounds);

      // Every heartbeat was counted, and every row still fit on its page.
      const kept = await store.database.query(
        'select heartbeats, count(longest_silence_since)::int as silences from live_jobs group by heartbeats',
        [],
      );
      expect(kept).to.deep.equal([{ heartbeats: 4 + rounds, silences: leases }]);

      // The reaper reschedules each due lease that has been renewed, once. That update writes the index.
      await during(async (engine) => {
        await store.database.query("update live_jobs set check_at = now() - interval '1 s'", []);
        for (let look = 0; look < 3; look++) expect(await engine.services.reaper.runOnce()).to.equal(0);
      });
      const rearmed = await updates(after.all + leases);
      expect(rearmed.all - after.all).to.be.within(leases, 2 * leases);
      const [due] = await store.database.query<{ n: number }>(
        'select count(*)::int as n from live_jobs where check_at is distinct from expires_at',
        [],
      );
      expect(due?.n).to.equal(0);
    };

    for (const held of ['with a holder', 'without a holder'] as const)
      it(
        `writes no index for 5,000 heartbeats of leases ${held} (HOT updates), and re-arms each lease once`,
        check(held),
      );
  });
});

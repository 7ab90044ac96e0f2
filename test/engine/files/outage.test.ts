import { expect } from 'chai';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  acquireFiles,
  beatOwner,
  contended,
  granted,
  holdersOf,
  wipeFiles,
} from '../../support/file-lease-helpers.ts';
import { letFilesAge, letFileTimePass } from '../../support/files.ts';
import { caller, type TestedEngine } from '../../support/jobs.ts';
import { outageForEach } from '../../support/outages.ts';

onEveryEngine((kind) => {
  describe('an outage of all servers, for file owners', () => {
    const stage = outageForEach(kind, wipeFiles);
    const { newServer } = stage;
    let store: TestDatabase;
    let alive: TestedEngine;
    beforeEach(() => {
      ({ store, alive } = stage);
    });

    /** No server is alive for `ms`. */
    const silence = async (ms: number) => {
      await letFilesAge(store.database, ms);
      await store.database.query(
        "update pulse set alive_at = clock_timestamp() - $1::float8 * interval '1 ms'",
        [ms],
      );
    };

    it('extends owners by the outage before the reaper declares any of them dead', async () => {
      await granted(alive, 'a', 'p');
      await silence(3_600_000);
      const engine = newServer();
      await engine.services.fileReaper.runOnce();
      expect(await holdersOf(store.database)).to.deep.equal({ p: 'a' });
      expect(await beatOwner(engine, 'a')).to.equal('extended');
      const outages = await store.database.query<{ n: number }>(
        'select owners_extended as n from outages',
        [],
      );
      expect(outages).to.deep.equal([{ n: 1 }]);
    });

    it('extends owners before it answers requests for their files and their own heartbeats', async () => {
      await granted(alive, 'a', 'p');
      await silence(600_000);
      const contention = await contended(newServer(), 'b', 'p');
      expect(contention.blockers[0]?.ownerId).to.equal('a');
      await silence(600_000);
      expect(await beatOwner(newServer(), 'a')).to.equal('extended');
    });

    it('detects an outage on a server that was stalled itself', async () => {
      await granted(alive, 'a', 'p');
      await alive.services.outageMonitor.runOnce();
      await silence(600_000);
      await alive.services.fileReaper.runOnce();
      expect(await holdersOf(store.database)).to.deep.equal({ p: 'a' });
      await alive.services.outageMonitor.runOnce();
      await silence(600_000);
      expect((await acquireFiles(alive, 'b', 'p')).kind).to.equal('contended');
      await alive.services.outageMonitor.runOnce();
      await silence(600_000);
      expect(await beatOwner(alive, 'a')).to.equal('extended');
    });

    it("keeps the rest of a stopped owner's 30 seconds, and leaves other owners unchanged", async () => {
      await granted(alive, 'stopped', 'p');
      await granted(alive, 'busy', 'q');
      await alive.files.stopOwner('stopped', caller);
      await letFileTimePass(store.database, 10_000);
      await silence(100_000);
      const engine = newServer();
      await engine.services.fileReaper.runOnce();
      expect(await holdersOf(store.database)).to.deep.equal({ p: 'stopped', q: 'busy' });
      await letFileTimePass(store.database, 21_000);
      await engine.services.fileReaper.runOnce();
      expect(await holdersOf(store.database)).to.deep.equal({ q: 'busy' });
    });

    it('compensates an outage once: an owner without heartbeats afterwards dies', async () => {
      await granted(alive, 'a', 'p');
      await silence(600_000);
      const engine = newServer();
      await engine.services.fileReaper.runOnce();
      await letFileTimePass(store.database, 60_500);
      await engine.services.fileReaper.runOnce();
      expect(await holdersOf(store.database)).to.deep.equal({});
      expect(await beatOwner(engine, 'a')).to.equal('owner_not_alive');
    });

    it('never moves the retry time of a contention', async () => {
      await granted(alive, 'a', 'p');
      const before = await contended(alive, 'b', 'p');
      await silence(100_000);
      const after = await contended(newServer(), 'b', 'p');
      expect(after.contentionId).to.equal(before.contentionId);
      expect(after.retryAtMs - after.deniedAtMs).to.equal(180_000);
      expect(after.retryAfterMs).to.be.within(70_000, 80_000);
    });
  });
});

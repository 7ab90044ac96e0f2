import { expect } from 'chai';
import type { Engine } from '../../../src/engine/engine.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { contended, granted, repository, wipeFiles } from '../../support/file-lease-helpers.ts';
import { letFileTimePass } from '../../support/files.ts';
import { engineOn } from '../../support/jobs.ts';

onEveryEngine((kind) => {
  describe('the reaper of file leases, where the dead leave much behind', () => {
    let store: TestDatabase;
    let engine: Engine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    beforeEach(() => wipeFiles(store.database));
    after(async () => {
      await engine.stop();
      await store.close();
    });

    const files = 6_000;
    const owners = ['a', 'b', 'c'];
    const leaveBehind = async () => {
      for (const owner of owners) {
        await granted(engine, owner, owner);
        await store.database.query(
          `insert into file_leases (file_id, repository, path, state, owner_id, acquired_at, fence)
           select gen_random_uuid(), $1, $2 || '/' || n, 0, $2, clock_timestamp(), nextval('lease_fence')
           from generate_series(2, $3::int) n`,
          [repository, owner, files],
        );
      }
      await letFileTimePass(store.database, 60_500);
    };
    /** Files taken back by each of the transactions that it took. */
    const reclaimed = async () => {
      const rows = await store.database.query<{ n: number }>(
        'select count(*)::int as n from file_events where type = 8 group by txid order by txid',
        [],
      );
      return rows.map(({ n }) => n);
    };

    it('takes back everything in one round, and not more at once than a transaction should carry', async () => {
      await leaveBehind();
      // More where a server that was slow had to make sure first that it may judge.
      expect(await engine.fileReaper.runOnce()).to.be.at.least(3);
      expect(await reclaimed()).to.deep.equal([files, files, files]);
    });

    it('does so for whoever asks for a file of the dead', async () => {
      await leaveBehind();
      await engine.fileReaper.reap(owners);
      expect(await reclaimed()).to.deep.equal([files, files, files]);
      await granted(engine, 'heir', ...owners);
      await contended(engine, 'other', 'a');
    });
  });
});

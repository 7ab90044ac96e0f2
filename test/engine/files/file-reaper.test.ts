import { expect } from 'chai';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { contended, granted, repository, wipeFiles } from '../../support/file-lease-helpers.ts';
import { letFileTimePass } from '../../support/files.ts';
import { engineOn, type TestedEngine } from '../../support/jobs.ts';

onEveryEngine((kind) => {
  describe('FileReaper with thousands of files of dead owners', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
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
    /** Number of files that each transaction reclaimed. */
    const reclaimed = async () => {
      const rows = await store.database.query<{ n: number }>(
        'select count(*)::int as n from file_events where type = 8 group by txid order by txid',
        [],
      );
      return rows.map(({ n }) => n);
    };

    it('reclaims all files of dead owners in one round, in transactions of bounded size', async () => {
      await leaveBehind();
      // The count is higher if a slow server first had to verify that it may decide.
      expect(await engine.services.fileReaper.runOnce()).to.be.at.least(3);
      expect(await reclaimed()).to.deep.equal([files, files, files]);
    });

    it('reclaims all files of the given dead owners in transactions of bounded size', async () => {
      await leaveBehind();
      await engine.services.fileReaper.reap(owners);
      expect(await reclaimed()).to.deep.equal([files, files, files]);
      await granted(engine, 'heir', ...owners);
      await contended(engine, 'other', 'a');
    });
  });
});

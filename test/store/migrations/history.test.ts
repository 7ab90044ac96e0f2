/** The guarantee: the migration to partitions keeps existing events where they are. */
import { expect } from 'chai';
import type { Database } from '../../../src/store/database.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { daysAhead, daysAheadMax, readEventPartitions } from '../../../src/store/sql/events/partitions.ts';
import { onEveryEngine, type TestStore } from '../../support/engines.ts';
import { Holder } from '../../support/lease-helpers.ts';

const before = '0004-files';
const migration = '0006-history';

const insert = (at: string) =>
  `insert into job_events (at, job_id, type, actor) values (${at}, gen_random_uuid(), 0, 'a')`;
const rows = (database: Database) =>
  database.query<{ event_id: string; at: string }>(
    'select event_id, at::text as at, job_id, actor from job_events order by event_id',
    [],
  );
/** The files on disk that hold the rows. */
const files = async (database: Database) =>
  (
    await database.query<{ file: number }>(
      "select distinct pg_relation_filenode(tableoid)::int as file from job_events where actor = 'a'",
      [],
    )
  ).map(({ file }) => file);

onEveryEngine((kind) => {
  describe('the migration of the history to partitions', () => {
    let store: TestStore;
    let database: Database;
    beforeEach(async () => {
      store = await kind.create({ empty: true });
      database = await openDatabase(store.options);
      await database.orm.migrator.up({ to: before });
    });
    afterEach(async () => {
      await database.close();
      await store.remove();
    });

    it('moves and loses no row, also from a clock ahead, and continues the numbers', async () => {
      for (const at of ["now() - interval '400 days'", 'now()', "now() + interval '3 days'"])
        await database.query(insert(at), []);
      const [told, lie] = [await rows(database), await files(database)];
      expect(await migrate(database)).to.include(migration);
      expect(await rows(database)).to.deep.equal(told);
      expect(await files(database)).to.deep.equal(lie);
      expect(daysAhead(await readEventPartitions(database))).to.be.at.least(daysAheadMax);
      await database.query(insert('now()'), []);
      await database.query(insert("now() + interval '8 days'"), []);
      const ids = (await rows(database)).map(({ event_id }) => Number(event_id));
      expect(ids).to.deep.equal([...new Set(ids)]);
      expect(ids.at(-1)).to.be.above(Number(told.at(-1)?.event_id));
      // The numbers continue when the first partition, to which they belonged, is dropped.
      for (const { name, from } of (await readEventPartitions(database)).parts) {
        if (from !== null) continue;
        await database.query(`alter table job_events detach partition ${name}`, []);
        await database.query(`drop table ${name}`, []);
      }
      await database.query(insert("now() + interval '5 days'"), []);
    });

    it('reverts without losing a row', async () => {
      await database.query(insert('now()'), []);
      await migrate(database);
      await database.query(insert("now() + interval '3 days'"), []);
      const told = await rows(database);
      await database.orm.migrator.down({ to: before });
      expect(await rows(database)).to.deep.equal(told);
      await database.query(insert('now()'), []);
      expect(await migrate(database)).to.include(migration);
      expect(await rows(database)).to.have.length(3);
    });

    it('keeps views on all events working, before and after', async () => {
      await database.query('create view told as select event_id, at from job_events', []);
      await database.query('create view told_later as select event_id from told', []);
      const count = async () => (await database.query('select from told_later', [])).length;
      await migrate(database);
      await database.query(insert("now() + interval '3 days'"), []);
      expect(await count()).to.equal(1);
      await database.orm.migrator.down({ to: before });
      await database.query(insert('now()'), []);
      expect(await count()).to.equal(2);
    });

    if (kind.name !== 'postgresql') return;

    it("waits for an old server's transaction without blocking it", async () => {
      const older = await Holder.hold(store, insert('now()'));
      const migrating = migrate(database);
      await older.untilWaiting(1);
      // What an old server does in one transaction besides writing events.
      await older.query('select from capacity where capacity_id = 1 for update');
      await older.query(
        "insert into leases select gen_random_uuid(), gen_random_uuid(), 1, 'w', 1, 1, 1, gen_random_uuid(), 2, now(), now(), now(), now(), null, false, null, null",
      );
      await older.query('update live_jobs set note = null');
      await older.query('delete from job_outcomes');
      await older.query(insert('now()'));
      await older.letGo();
      expect(await migrating).to.include(migration);
      const later = await Holder.hold(store, insert('now()'));
      await later.letGo();
      expect(await rows(database)).to.have.length(3);
    });
  });
});

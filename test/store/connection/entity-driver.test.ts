/**
 * The guarantee: statements of MikroORM run like all others, with bound values, in the open transaction, with
 * unchanged errors and cancellation.
 */
import { raw } from '@mikro-orm/core';
import { expect } from 'chai';
import { bind } from '../../../src/store/connection/entity-driver.ts';
import { sqlState, timestamp } from '../../../src/store/connection/sql.ts';
import { CapacityRow } from '../../../src/store/schema/lease-entities.ts';
import { Identity, Outage, PruneWalk } from '../../../src/store/schema/server-entities.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { failure } from '../../support/failure.ts';

const quoteName = (name: string) => `"${name}"`;

describe('statements of MikroORM', () => {
  it('binds values in order and quotes names', () => {
    const fragment = {
      sql: 'select ?? from t where a = ? and b in (?) and c = ?',
      params: ['x', 1, [2, 3], 'é'],
    };
    expect(bind(fragment, quoteName)).to.deep.equal({
      sql: 'select "x" from t where a = $1 and b in ($2, $3) and c = $4',
      values: [1, 2, 3, 'é'],
    });
  });

  it('keeps operators with a question mark, and inserts raw fragments with their values', () => {
    expect(bind({ sql: "select '{}'::jsonb ? 'a'", params: [] }, quoteName).sql).to.include('? ');
    const fragment = { sql: 'a \\? ? and ? = b', params: ['k', raw('c + ?', [7])] };
    expect(bind(fragment, quoteName)).to.deep.equal({ sql: 'a ? $1 and c + $2 = b', values: ['k', 7] });
  });

  it('refuses a statement with a missing value', () => {
    expect(() => bind({ sql: 'a = ? and b = ?', params: [1] }, quoteName)).to.throw('more placeholders');
  });

  it('writes times that PostgreSQL reads, also beyond the year 9999', () => {
    expect(timestamp(new Date(Date.UTC(2026, 0, 2)))).to.equal('2026-01-02T00:00:00.000Z');
    expect(timestamp(new Date(Date.UTC(10000, 0, 1)))).to.equal('10000-01-01T00:00:00.000Z');
  });
});

onEveryEngine((kind) => {
  describe('EntityManager', () => {
    let store: TestDatabase;
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());

    it('reads and writes entities whose values need quoting', async () => {
      const { database } = store;
      const walk = `o'clock \\ "?" $1 -- é`;
      const em = database.em();
      em.persist(em.create(PruneWalk, { walk, mark: null, rests_until: new Date(0) }));
      await em.flush();
      const kept = await database.em().findOneOrFail(PruneWalk, { walk });
      expect(kept).to.deep.include({ walk, mark: null, rests_until: new Date(0) });
      expect(await database.em().nativeUpdate(PruneWalk, { walk }, { mark: 'm?' })).to.equal(1);
      expect(await database.em().nativeUpdate(PruneWalk, { walk: 'none' }, { mark: 'x' })).to.equal(0);
      const [row] = await database.query<{ mark: string }>('select mark from prune_walks where walk = $1', [
        walk,
      ]);
      expect(row?.mark).to.equal('m?');
      expect(await database.em().nativeDelete(PruneWalk, { walk })).to.equal(1);
    });

    it('joins the transaction that it is taken from, and rolls back with it', async () => {
      const { database } = store;
      const error = await failure(
        database.transaction(async (sql) => {
          await sql.em().nativeUpdate(CapacityRow, { capacity_id: 1 }, { total: 77 });
          expect((await sql.em().findOneOrFail(CapacityRow, 1)).total).to.equal(77);
          throw new Error('changed my mind');
        }),
      );
      expect(error).to.have.property('message', 'changed my mind');
      expect((await database.em().findOneOrFail(CapacityRow, 1)).total).to.equal(null);
    });

    it('runs its own transactions as transactions of the database', async () => {
      const { database } = store;
      await database.em().transactional(async (em) => {
        const row = await em.findOneOrFail(CapacityRow, 1);
        row.busy_rating = 3;
      });
      expect((await database.em().findOneOrFail(CapacityRow, 1)).busy_rating).to.equal(3);
      const error = await failure(
        database.em().transactional(async (em) => {
          await em.nativeUpdate(CapacityRow, { capacity_id: 1 }, { busy_rating: 4 });
          throw new Error('changed my mind');
        }),
      );
      expect(error).to.have.property('message', 'changed my mind');
      expect((await database.em().findOneOrFail(CapacityRow, 1)).busy_rating).to.equal(3);
    });

    it('passes on errors of the database with their SQLSTATE', async () => {
      const em = store.database.em();
      const { database_id } = await em.findOneOrFail(Identity, 1);
      const error = await failure(store.database.em().insert(Identity, { identity_id: 1, database_id }));
      expect(sqlState(error)).to.equal('23505');
      expect(error).to.have.property('constraint', 'identity_pkey');
    });

    it('starts no statement for a canceled caller', async () => {
      const error = await failure(store.database.em(AbortSignal.abort()).find(Outage, {}));
      expect(error).to.have.property('name', 'AbortError');
    });
  });
});

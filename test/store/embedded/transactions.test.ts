import { expect } from 'chai';
import { CompiledQuery, type Kysely } from 'kysely';
import pg from 'pg';
import { type EmbeddedDatabase, openEmbedded } from '../../../src/store/embedded/client.ts';
import type { WireStream } from '../../../src/store/embedded/wire-stream.ts';
import {
  type Connection,
  connect,
  rejection,
  rowsOf,
  temporaryDirectory,
} from '../../support/embedded-database.ts';

describe('concurrent use of the embedded database', function () {
  this.timeout(10_000);
  const place = temporaryDirectory();
  let database: EmbeddedDatabase;
  let connection: Connection;
  let kysely: Kysely<unknown>;

  before(async () => {
    database = await openEmbedded(place.dir, { sessionSql: ['set enable_hashjoin = off'] });
    connection = await connect(database.ormOptions);
    kysely = connection.kysely;
    await rowsOf(kysely, 'create table entry (id int primary key, owner text not null)');
    await rowsOf(kysely, 'create table counter (value int not null)');
    await rowsOf(kysely, 'insert into counter values (0)');
  });

  after(async () => {
    await connection.close();
    await database.close();
    place.remove();
  });

  beforeEach(async () => {
    await rowsOf(kysely, 'truncate entry');
    await rowsOf(kysely, 'update counter set value = 0');
  });

  /** Three statements with other work between them; every third transaction rolls back. */
  async function transaction(n: number): Promise<void> {
    const outcome = kysely.transaction().execute(async (trx) => {
      const [first] = await rowsOf(trx, 'select txid_current()::text as id');
      const [before] = await rowsOf(trx, 'select value from counter');
      await rowsOf(trx, 'insert into entry values ($1, $2)', [n, 'transaction']);
      await new Promise(setImmediate);
      await rowsOf(trx, 'update counter set value = $1', [Number(before?.value) + 1]);
      const [last] = await rowsOf(trx, 'select txid_current()::text as id');
      expect(last).to.deep.equal(first);
      if (n % 3 === 0) throw new Error('rolled back on purpose');
    });
    if (n % 3 === 0) expect((await rejection(outcome)).message).to.equal('rolled back on purpose');
    else await outcome;
  }

  /** Each statement outside a transaction has its own, and another session's rollback does not affect it. */
  async function plain(n: number): Promise<void> {
    const sql = 'insert into entry values ($1, $2) returning txid_current()::text as id';
    const [one] = await rowsOf(kysely, sql, [n, 'plain']);
    const [other] = await rowsOf(kysely, 'select txid_current()::text as id');
    expect(other?.id).not.to.equal(one?.id);
  }

  it('isolates fifty transactions, some rolled back, from fifty plain statements', async () => {
    const numbers = Array.from({ length: 50 }, (_, n) => n);
    await Promise.all(numbers.flatMap((n) => [transaction(n), plain(1000 + n)]));
    const kept = numbers.filter((n) => n % 3 !== 0);
    const ids = await rowsOf(kysely, 'select id from entry order by id');
    expect(ids.map(({ id }) => id)).to.deep.equal([...kept, ...numbers.map((n) => 1000 + n)]);
    expect(await rowsOf(kysely, 'select value from counter')).to.deep.equal([{ value: kept.length }]);
  });

  it('continues after a statement failed inside a transaction', async () => {
    const failed = kysely.transaction().execute(async (trx) => {
      await rowsOf(trx, 'insert into entry values (1, $1)', ['first']);
      await rowsOf(trx, 'insert into entry values (1, $1)', ['again']);
    });
    expect(await rejection(failed)).to.include({ code: '23505', constraint: 'entry_pkey' });
    expect(await rowsOf(kysely, 'select * from entry')).to.deep.equal([]);
  });

  it('keeps changes from before a savepoint that is rolled back', async () => {
    const trx = await kysely.startTransaction().execute();
    await rowsOf(trx, 'insert into entry values (1, $1)', ['kept']);
    const inner = await trx.savepoint('inner').execute();
    await rowsOf(inner, 'insert into entry values (2, $1)', ['dropped']);
    await inner.rollbackToSavepoint('inner').execute();
    await trx.commit().execute();
    expect(await rowsOf(kysely, 'select id from entry')).to.deep.equal([{ id: 1 }]);
  });

  it('applies the given session settings, and UTC, to every connection', async () => {
    const sql = `select current_setting('enable_hashjoin') as joins, current_setting('timezone') as zone`;
    const seen = await Promise.all(Array.from({ length: 8 }, () => rowsOf(kysely, sql)));
    for (const rows of seen) expect(rows).to.deep.equal([{ joins: 'off', zone: 'UTC' }]);
  });

  it('rolls back the transaction of a broken connection, and serves the next one', async () => {
    const streams: WireStream[] = [];
    const stream = () => {
      const opened = database.connect();
      streams.push(opened);
      return opened;
    };
    const { driverOptions, ...options } = database.ormOptions;
    const other = await connect({ ...options, driverOptions: { ...driverOptions, stream } });
    let waiting: Promise<unknown> = Promise.resolve();
    const broken = other.kysely.transaction().execute(async (trx) => {
      await rowsOf(trx, 'insert into entry values (1, $1)', ['lost']);
      waiting = rowsOf(kysely, 'select * from entry');
      streams[0]?.destroy(new Error('broken on purpose'));
      await rowsOf(trx, 'select 1');
    });
    expect((await rejection(broken)).message).to.match(/broken on purpose|not queryable/);
    expect(await waiting).to.deep.equal([]);
    expect(await rowsOf(other.kysely, 'select 1 as one')).to.deep.equal([{ one: 1 }]);
    await other.close();
  });

  it('drops a waiting query when its signal aborts', async () => {
    const controller = new AbortController();
    const trx = await kysely.startTransaction().execute();
    const occupied = Array.from({ length: 3 }, () => rowsOf(kysely, 'select 1'));
    const insert = CompiledQuery.raw('insert into entry values (7, $1)', ['aborted']);
    const waiting = rejection(kysely.executeQuery(insert, { signal: controller.signal }));
    controller.abort(new Error('no longer wanted'));
    expect((await waiting).message).to.equal('no longer wanted');
    await trx.commit().execute();
    await Promise.all(occupied);
    expect(await rowsOf(kysely, 'select * from entry')).to.deep.equal([]);
  });

  it("delivers a notification to a listening connection after the sender's commit", async () => {
    const { dbName, user, host, driverOptions } = database.ormOptions;
    const listener = new pg.Client({ database: dbName, user, host, ...driverOptions });
    await listener.connect();
    const heard: unknown[] = [];
    const second = new Promise<void>((resolve) => {
      listener.on('notification', ({ payload }) => {
        if (heard.push(payload) === 2) resolve();
      });
    });
    await listener.query('listen work');
    const trx = await kysely.startTransaction().execute();
    await rowsOf(trx, `select pg_notify('work', 'rolled back')`);
    await trx.rollback().execute();
    await rowsOf(kysely, `select pg_notify('work', 'grüße')`);
    await listener.query(`select pg_notify('work', 'its own')`);
    await second;
    expect(heard).to.deep.equal(['grüße', 'its own']);
    await listener.end();
  });
});

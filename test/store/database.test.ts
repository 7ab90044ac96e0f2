import { expect } from 'chai';
import {
  isCancelled,
  isRetryable,
  isUnavailable,
  type Sql,
  sqlState,
  timeMs,
} from '../../src/store/connection/sql.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open.ts';
import { onEveryEngine } from '../support/engines.ts';
import { failure } from '../support/failure.ts';
import { eventually } from '../support/server.ts';
import { sessionsOver } from '../support/sessions.ts';

describe('Database', () => {
  onEveryEngine((engine) => {
    let database: Database;
    let close: () => Promise<void>;
    before(async () => {
      ({ database, close } = await engine.open());
      await database.query('create table marks (n int primary key)', []);
    });
    after(() => close());

    it('commits a transaction completely or not at all', async () => {
      const error = await failure(
        database.transaction(async (sql) => {
          await sql.query('insert into marks values (1)', []);
          throw new Error('changed my mind');
        }),
      );
      expect(error).to.have.property('message', 'changed my mind');
      expect(await database.query('select n from marks where n = 1', [])).to.deep.equal([]);
    });

    it('runs statements in the order of the calls without awaiting each', async () => {
      const found = await database.transaction(async (sql) => {
        const asked = [
          sql.query('insert into marks values (10)', []),
          sql.query('update marks set n = 11 where n = 10', []),
          sql.query<{ n: number }>('select n from marks where n between 10 and 19', []),
        ];
        return (await Promise.all(asked))[2];
      });
      expect(found).to.deep.equal([{ n: 11 }]);
      expect(await database.query('select n from marks where n = 11', [])).to.have.length(1);
    });

    it('rolls back statements before and after a failed one, and continues', async () => {
      for (let round = 0; round < 5; round++) {
        const error = await failure(
          database.transaction((sql) =>
            Promise.all([
              sql.query('insert into marks values (20)', []),
              sql.query('select 1 / 0', []),
              sql.query('insert into marks values (21)', []),
            ]),
          ),
        );
        expect(sqlState(error)).to.equal('22012');
      }
      expect(await database.query('select n from marks where n between 20 and 29', [])).to.deep.equal([]);
    });

    it('reports the cause of a failed transaction, whichever caller sees it first', async () => {
      const error = await failure(
        database.transaction((sql) =>
          Promise.all([
            // This caller awaits more steps, so it sees the error later.
            (async () => await (async () => await sql.query('select 1 / 0', []))())(),
            sql.query('select 1', []),
          ]),
        ),
      );
      expect(sqlState(error)).to.equal('22012');
    });

    it('rejects statements in a transaction that has ended', async () => {
      let over = () => {};
      const isOver = new Promise<void>((resolve) => {
        over = resolve;
      });
      let late: Promise<unknown> = Promise.resolve();
      const error = await failure(
        database.transaction((sql) => {
          late = isOver.then(() => sql.query('insert into marks values (30)', []));
          return Promise.all([late, sql.query('select 1 / 0', [])]);
        }),
      );
      expect(sqlState(error)).to.equal('22012');
      over();
      expect(await failure(late)).to.have.property('message', 'the transaction is over');
      expect(await database.query('select n from marks where n = 30', [])).to.deep.equal([]);
    });

    it('commits after the last statement of a sealed transaction', async () => {
      const late = await database.transaction(async (sql) => {
        const written = sql.query('insert into marks values (40)', []);
        sql.seal();
        await written;
        // The commit follows although this work has not returned.
        await eventually('it is committed', async () =>
          (await database.query('select n from marks where n = 40', [])).length === 1 ? true : undefined,
        );
        return failure(sql.query('insert into marks values (41)', []));
      });
      expect(late).to.have.property('message', 'the transaction is over');
      expect(await database.query('select n from marks where n > 40', [])).to.deep.equal([]);
    });

    it('does not commit a sealed transaction whose last statement was never sent', async () => {
      for (const isAwaited of [true, false]) {
        const gone = new AbortController();
        const error = await failure(
          database.transaction(async (sql) => {
            await sql.query('insert into marks values (60)', []);
            gone.abort();
            const last = sql.query('insert into marks values (61)', []);
            last.catch(() => {});
            sql.seal();
            if (isAwaited) await last;
          }, gone.signal),
        );
        expect(isCancelled(error)).to.equal(true);
        expect(await database.query('select n from marks where n between 60 and 69', [])).to.deep.equal([]);
      }
    });

    it('commits nothing of an abandoned transaction that is sealed afterwards', async () => {
      const error = await failure(
        database.transaction(async (sql) => {
          await sql.query('insert into marks values (70)', []);
          void sql.query('insert into marks values (71)', []).then(() => sql.seal());
          throw new Error('changed my mind');
        }),
      );
      expect(error).to.have.property('message', 'changed my mind');
      expect(await database.query('select n from marks where n between 70 and 79', [])).to.deep.equal([]);
    });

    it('answers each statement with its own result, also after one that failed', async () => {
      // With a parameter, the statement is parsed, bound and executed in messages of its own.
      const fails = (sql: Sql) => sql.query('select 1 / $1::int', [0]);
      for (let round = 0; round < 3; round++) {
        const error = await failure(
          database.transaction(async (sql) => {
            const failed = fails(sql);
            sql.seal();
            await failed;
          }),
        );
        expect(sqlState(error)).to.equal('22012');
        const answers = await Promise.all(
          [1, 2, 3].map((n) => database.query<{ n: number }>('select $1::int as n', [n])),
        );
        expect(answers.map(([row]) => row?.n)).to.deep.equal([1, 2, 3]);
      }
    });

    it('does not commit when a statement before the last one failed, and reports that', async () => {
      for (const isAwaited of [true, false]) {
        const error = await failure(
          database.transaction(async (sql) => {
            const written = sql.query('insert into marks values (50)', []);
            const failed = sql.query('select 1 / 0', []);
            failed.catch(() => {});
            sql.seal();
            await written;
            if (isAwaited) await failed;
          }),
        );
        expect(sqlState(error)).to.equal('22012');
        expect(await database.query('select n from marks where n = 50', [])).to.deep.equal([]);
      }
    });

    it("passes on the error of a transaction's first statement", async () => {
      const error = await failure(database.transaction((sql) => sql.query('select nonsense', [])));
      expect(sqlState(error)).to.equal('42703');
      expect(await database.transaction((sql) => sql.query('select 1 as one', []))).to.deep.equal([
        { one: 1 },
      ]);
    });

    it('retries a transaction after a serialization failure, a limited number of times', async () => {
      let attempts = 0;
      const lose = async (sql: Sql) => {
        attempts++;
        await sql.query("do $$ begin raise exception 'lost' using errcode = '40001'; end $$", []);
      };
      expect(isRetryable(await failure(database.transaction(lose)))).to.equal(true);
      expect(attempts).to.be.above(1);
      attempts = 0;
      await database.transaction(async () => {
        attempts++;
        if (attempts === 1) throw Object.assign(new Error('deadlock'), { code: '40P01' });
      });
      expect(attempts).to.equal(2);
    });

    it('disables hash joins and JIT on every connection', async () => {
      const settings = await Promise.all(
        Array.from({ length: 4 }, () =>
          database.query<{ setting: string }>(
            "select current_setting('enable_hashjoin') || current_setting('jit') || current_setting('timezone') as setting",
            [],
          ),
        ),
      );
      for (const rows of settings) expect(rows).to.deep.equal([{ setting: 'offoffUTC' }]);
    });

    it('reads times correctly whatever DateStyle the database has', async () => {
      // The embedded database has only the settings of the server.
      if (engine.name !== 'postgresql') return;
      await using own = await engine.open();
      await own.database.query(
        "do $$ begin execute format('alter database %I set datestyle = ''german, dmy''', current_database()); end $$",
        [],
      );
      const another = await openDatabase(own.options);
      const rows = await another.query<{ at: string }>('select to_timestamp(1) as at', []);
      await another.close();
      expect(rows.map(({ at }) => timeMs(at))).to.deep.equal([1_000]);
    });

    it('leaves no session behind when it is closed', async () => {
      // The embedded database has no visible sessions.
      if (engine.name !== 'postgresql') return;
      await using own = await engine.open();
      const began = performance.now();
      await sessionsOver(own.database, async () => {
        const another = await openDatabase(own.options);
        await another.transaction((sql) => sql.query('select 1', []));
        await another.close();
      });
      // The pool would close idle sessions after ten seconds.
      expect(performance.now() - began).to.be.below(5_000);
    });

    it('passes on the error of a statement without reporting an outage', async () => {
      const error = await failure(database.query('select nonsense', []));
      expect(sqlState(error)).to.equal('42703');
      expect(isUnavailable(error)).to.equal(false);
    });

    if (engine.name === 'postgresql') {
      it('cancels a running statement when its signal aborts', async () => {
        const controller = new AbortController();
        const sleeping = failure(
          database.query("select pg_sleep(20), 'find me' as mark", [], controller.signal),
        );
        const running = () =>
          database.query(
            "select 1 from pg_stat_activity where query like '%find me%' and pid <> pg_backend_pid() and state = 'active'",
            [],
          );
        while ((await running()).length === 0);
        controller.abort();
        expect(isCancelled(await sleeping)).to.equal(true);
        while ((await running()).length > 0);
      });
    }
  });
});

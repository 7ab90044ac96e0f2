import type { Socket } from 'node:net';
import { expect } from 'chai';
import { PreparedClient, prepared } from '../../../src/store/connection/prepared-client.ts';
import { type Sql, sqlState } from '../../../src/store/connection/sql.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';

const currentMode = "current_setting('plan_cache_mode')";

onEveryEngine((kind) => {
  if (kind.name !== 'postgresql') return;
  describe('PreparedClient', () => {
    let store: TestDatabase;
    let client: PreparedClient;
    before(async () => {
      store = await kind.open();
      client = new PreparedClient({ connectionString: store.options.url, pipeline: true } as object);
      await client.connect();
    });
    after(async () => {
      await client.end();
      await store.close();
    });

    it('sends the statements of one turn in one write, and answers each', async () => {
      const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
      let pieces = 0;
      for (const name of ['_write', '_writev'] as const) {
        const original = stream[name] as (...args: unknown[]) => void;
        Object.assign(stream, {
          [name](...args: unknown[]) {
            pieces++;
            original.apply(stream, args);
          },
        });
      }
      const asked = ['select 1 as n', 'select 2 as n', 'select 1 / 0', 'select 4 as n'].map((text) =>
        client.run<{ n: number }>(text, [], undefined),
      );
      const answers = await Promise.allSettled(asked);
      expect(pieces).to.equal(1);
      const told = answers.map((one) =>
        one.status === 'fulfilled' ? one.value[0]?.n : sqlState(one.reason),
      );
      expect(told).to.deep.equal([1, 2, '22012', 4]);
      await client.run('select 1', [], undefined);
      expect(pieces).to.equal(2);
    });

    describe('planning of statements', () => {
      const nothing = async () => undefined;
      const modeNow = async (transaction: Sql) => {
        const [row] = await transaction.query<{ mode: string }>(`select ${currentMode} as mode`, []);
        return row?.mode;
      };

      it('plans a prepared statement once for all values, from its first execution on', async () => {
        const text = prepared('select $1::int + 1 as n');
        for (const n of [1, 2, 3]) await store.database.query(text, [n]);
        const [plans] = await store.database.query<{ generic: number; custom: number }>(
          `select sum(generic_plans)::int as generic, sum(custom_plans)::int as custom
          from pg_prepared_statements where statement = $1`,
          [text],
        );
        expect(plans).to.deep.equal({ generic: 3, custom: 0 });
      });

      it('plans any other statement for its values, and prepared ones generically after it', async () => {
        const [own] = await store.database.query<{ mode: string }>(`select $1 || ${currentMode} as mode`, [
          '',
        ]);
        expect(own?.mode).to.equal('force_custom_plan');
        expect(await modeNow(store.database)).to.equal('force_generic_plan');
      });

      const ways: Record<string, (sql: Sql) => Promise<unknown>> = {
        'that fails': (sql) => sql.query('select 1 / $1::int', [0]),
        'that is stopped': (sql) => sql.query('select pg_sleep($1)', [30], AbortSignal.timeout(50)),
        'whose transaction is given up': async (sql) => {
          await sql.query('select $1::int', [1]);
          throw new Error('enough');
        },
      };
      for (const [name, way] of Object.entries(ways)) {
        it(`plans prepared statements generically after another statement ${name}`, async () => {
          await way(store.database).then(nothing, nothing);
          expect(await modeNow(store.database)).to.equal('force_generic_plan');
          await store.database.transaction(way).then(nothing, nothing);
          expect(await modeNow(store.database)).to.equal('force_generic_plan');
        });
      }
    });
  });
});

describe('prepared statements beside others', () => {
  onEveryEngine((kind) => {
    it('plans prepared statements generically while others run at the same time', async () => {
      await using store = await kind.open();
      const mode = prepared(`select ${currentMode} || $1::text as mode`);
      const hotOnes = Array.from({ length: 50 }, () => store.database.query<{ mode: string }>(mode, ['']));
      const others = Array.from({ length: 50 }, () =>
        store.database.query<{ mode: string }>(`select $1 || ${currentMode} as mode`, ['']),
      );
      const modesOf = async (asked: Promise<{ mode: string }[]>[]) =>
        new Set((await Promise.all(asked)).flatMap((rows) => rows.map((row) => row.mode)));
      expect(await modesOf(hotOnes)).to.deep.equal(new Set(['force_generic_plan']));
      expect(await modesOf(others)).to.deep.equal(new Set(['force_custom_plan']));
    });
  });
});

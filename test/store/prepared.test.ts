import type { Socket } from 'node:net';
import { expect } from 'chai';
import { PreparingClient } from '../../src/store/prepared.ts';
import { sqlState } from '../../src/store/sql.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';

onEveryEngine((kind) => {
  if (kind.name !== 'postgresql') return;
  describe('a connection', () => {
    let store: TestDatabase;
    let client: PreparingClient;
    before(async () => {
      store = await kind.open();
      client = new PreparingClient({ connectionString: store.options.url, pipeline: true } as object);
      await client.connect();
    });
    after(async () => {
      await client.end();
      await store.close();
    });

    it('sends what is asked in one turn in one piece, and answers each', async () => {
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
  });
});

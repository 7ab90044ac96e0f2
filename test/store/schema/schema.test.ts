import { expect } from 'chai';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine } from '../../support/engines.ts';

describe('the schema', () => {
  onEveryEngine((engine) => {
    it('matches the entities after all migrations', async () => {
      await using store = await engine.open();
      const difference = await store.database.orm.schema.getUpdateSchemaSQL({ wrap: false });
      expect(difference).to.equal('');
    });

    it('migrates once, however many calls request it', async () => {
      const store = await engine.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        expect(await migrate(database)).to.have.length.above(0);
        expect(await migrate(database)).to.deep.equal([]);
      } finally {
        await database.close();
        await store.remove();
      }
    });
  });
});

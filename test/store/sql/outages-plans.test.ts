import { expect } from 'chai';
import { recordLife } from '../../../src/store/sql/outages.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, noServerFor } from '../../support/lease-helpers.ts';
import { rowsTouched } from '../../support/rows-touched.ts';

onEveryEngine((kind) => {
  describe('recordLife', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
      await submitted(engine, {});
      await acquired(engine);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    for (const plan of ['force_custom_plan', 'force_generic_plan']) {
      const touched = () =>
        rowsTouched(store.database, async (sql) => {
          await sql.query(`set local plan_cache_mode = ${plan}`, []);
          await recordLife(sql);
        });

      it(`reads leases after an outage and at no other time, ${plan}`, async () => {
        await recordLife(store.database);
        expect(await touched(), 'without an outage').to.equal(0);
        await noServerFor(store.database, 60_000);
        expect(await touched(), 'after one').to.be.above(0);
      });
    }
  });
});

import { expect } from 'chai';
import type { Engine } from '../../src/engine/engine.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';
import { caller, engineOn, submitted } from '../support/jobs.ts';
import { acquired, wipe } from './leasing.ts';

describe('the count of the capacity in use', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: Engine;
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());
    beforeEach(async () => {
      await wipe(store.database);
      engine = engineOn(store.database);
    });
    afterEach(() => engine.stop());

    it('is proved against the active leases, repaired where it is wrong, and told', async () => {
      await submitted(engine, { cost_units: 10 }, { cost_units: 20 });
      await acquired(engine);
      await acquired(engine);
      expect(await engine.capacity.runOnce()).to.equal(0);
      for (const wrong of [100, -7]) {
        await store.database.query('update capacity set used = used + $1::int', [wrong]);
        expect(await engine.capacity.runOnce()).to.equal(wrong);
        expect(await engine.capacity.get(caller)).to.include({ used: 30 });
        expect(await engine.capacity.runOnce()).to.equal(0);
      }
    });

    it('tells what claimed jobs would take, and takes it only with their leases', async () => {
      await submitted(engine, { cost_units: 60 }, { cost_units: 60 });
      const [first, second] = await engine.claimer.claim({ worker_id: 'w', limit: 2 }, caller);
      expect(await engine.capacity.get(caller)).to.include({ used: 0, reserved: 120, available: 100 });
      const ask = (jobId = '') => engine.leaseRequester.request({ job_id: jobId }, caller);
      const outcomes = await Promise.all([ask(first?.jobId), ask(second?.jobId)]);
      expect(outcomes.map((outcome) => outcome.kind)).to.deep.equal(['granted', 'denied']);
      expect(await engine.capacity.get(caller)).to.include({ used: 60, reserved: 60, available: 40 });
    });
  });
});

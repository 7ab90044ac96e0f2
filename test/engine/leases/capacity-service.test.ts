import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, submitted } from '../../support/jobs.ts';
import { acquired, freshForEach } from '../../support/lease-helpers.ts';

describe('CapacityService', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    it('compares used units with active leases, and repairs and returns a difference', async () => {
      await submitted(stage.engine, { cost_units: 10 }, { cost_units: 20 });
      await acquired(stage.engine);
      await acquired(stage.engine);
      expect(await stage.engine.services.capacity.runOnce()).to.equal(0);
      for (const wrong of [100, -7]) {
        await stage.store.database.query('update capacity set used = used + $1::int', [wrong]);
        expect(await stage.engine.services.capacity.runOnce()).to.equal(wrong);
        expect(await stage.engine.capacity.get(caller)).to.include({ used: 30 });
        expect(await stage.engine.services.capacity.runOnce()).to.equal(0);
      }
    });

    it('reports units of claimed jobs as reserved, and uses them only once leased', async () => {
      await submitted(stage.engine, { cost_units: 60 }, { cost_units: 60 });
      const [first, second] = await stage.engine.jobs.claim({ worker_id: 'w', limit: 2 }, caller);
      expect(await stage.engine.capacity.get(caller)).to.include({ used: 0, reserved: 120, available: 100 });
      const ask = (jobId = '') => stage.engine.leases.request({ job_id: jobId }, caller);
      const outcomes = await Promise.all([ask(first?.jobId), ask(second?.jobId)]);
      expect(outcomes.map((outcome) => outcome.kind)).to.deep.equal(['granted', 'denied']);
      expect(await stage.engine.capacity.get(caller)).to.include({ used: 60, reserved: 60, available: 40 });
    });
  });
});

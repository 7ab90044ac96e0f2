import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { engineOn } from '../../support/jobs.ts';
import { seedInto } from './seed.ts';

onEveryEngine((kind) => {
  it('leases that are seeded are what a server would have written: it finds nothing wrong with its figures', async () => {
    await using store = await kind.open();
    await seedInto(store.database, [
      { set: 1, leases: 30, perWorker: 7, ttlS: 60 },
      { set: 2, leases: 12, perWorker: 5, inARow: true, ttlS: 60, firstS: { from: 30, to: 90 } },
    ]);
    const engine = engineOn(store.database);
    try {
      expect(await engine.services.capacity.runOnce(), 'units too many').to.equal(0);
      // Before tallies are added up as after it.
      for (let look = 0; look < 2; look++) {
        expect(await engine.services.statsAggregator.audit()).to.deep.equal({
          shortfalls: [],
          wasTotalWrong: false,
        });
        await engine.services.statsAggregator.runOnce();
      }
    } finally {
      await engine.stop();
    }
  });
});

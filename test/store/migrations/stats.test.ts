import { expect } from 'chai';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, engineOn } from '../../support/jobs.ts';

describe('the migration that adds statistics', () => {
  onEveryEngine((kind) => {
    it('counts existing jobs, and needs no repair', async () => {
      const store = await kind.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        await database.orm.migrator.up({ to: '0004-files' });
        await database.query(
          `insert into lanes (lane_id, lane_key, stream, addon_id, job_type, requires, heavy)
          values (1, 'a', '', 'ann', 't', '{}', '{}'), (2, 'b', '', 'ann', 'u', '{}', '{}'), (3, 'c', '', 'bob', 't', '{}', '{}')`,
          [],
        );
        // Lane by lane, in alternating states: QUEUED, CLAIMED, RUNNING.
        await database.query(
          `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, attempts, attempts_limit, claims_lost,
            cancel_requested, updated_at)
          select gen_random_uuid(), 1 + n % 3, n, 2, 2, 4, (array[0, 1, 5])[1 + n / 3 % 3], 0, 1, 0, false, now()
          from generate_series(0, 17) as n`,
          [],
        );
        await database.query('update capacity set used = 12', []);
        expect(await migrate(database)).to.include('0005-stats');
        const engine = engineOn(database);
        const all = await engine.stats.snapshot({}, caller);
        expect(all.jobs).to.deep.equal({ queued: 6, claimed: 6, running: 6 });
        expect(all.capacity).to.include({ used: 12, reserved: 12 });
        const ann = await engine.stats.snapshot({ addon_id: 'ann' }, caller);
        expect(ann.jobs).to.deep.equal({ queued: 4, claimed: 4, running: 4 });
        expect(ann.capacity).to.include({ used: 8, reserved: 8 });
        expect(await engine.services.statsAggregator.audit()).to.deep.equal({
          shortfalls: [],
          wasTotalWrong: false,
        });
        await engine.stop();
      } finally {
        await database.close();
        await store.remove();
      }
    });
  });
});

import { expect } from 'chai';
import { metricNames, metrics, planSeries } from '../../../../src/domain/stats/series.ts';
import type { Sql } from '../../../../src/store/connection/sql.ts';
import { aggregateTallies, pruneRollups } from '../../../../src/store/sql/stats/aggregate.ts';
import { readSeries, readSnapshot } from '../../../../src/store/sql/stats/read.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { engineOn, submitted } from '../../../support/jobs.ts';

const addons = 8;
const minutes = 2_000;
/** The most rows that a snapshot reads for a day: the minutes of its first hour, and then hours. */
const dayRollups = 59 + 25;
const tables = [
  'stat_tallies',
  'stat_totals',
  'stat_rollups',
  'stat_fold',
  'lanes',
  'live_jobs',
  'job_outcomes',
  'leases',
];

/**
 * Rows of each table that some statements touch, by their transaction's own counters. Their changes are
 * rolled back.
 */
async function touched(
  { database }: TestDatabase,
  work: (sql: Sql) => Promise<unknown>,
): Promise<Record<string, number>> {
  return database.transaction(async (sql) => {
    const count = async () => {
      const rows = await sql.query<{ name: string; n: number }>(
        `select relname::text as name, coalesce(seq_tup_read + idx_tup_fetch, 0)::int as n from pg_stat_xact_user_tables
        where relname = any ($1)`,
        [tables],
      );
      return new Map(rows.map(({ name, n }) => [name, n]));
    };
    const before = await count();
    await sql.query('savepoint before', []);
    await work(sql);
    await sql.query('rollback to savepoint before', []);
    const after = await count();
    return Object.fromEntries([...after].map(([name, n]) => [name, n - (before.get(name) ?? 0)]));
  });
}

describe('plans of statistics queries', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());

    async function fill(): Promise<void> {
      await store.database.query(
        `insert into stat_totals (addon_id, queued) select case when n = 0 then '' else 'addon' || n end, n
        from generate_series(0, $1::int) as n on conflict (addon_id) do nothing`,
        [addons],
      );
      await store.database.query(
        `insert into stat_rollups (addon_id, level, bucket, submitted, wait_slots, wait_counts)
        select case when n = 0 then '' else 'addon' || n end, level,
          date_bin(level * interval '1 minute', now(), 'epoch') - m * level * interval '1 minute', 1,
          array[1, 2, 3], array[1, 1, 1]
        from generate_series(0, $1::int) as n, unnest(array[1, 5, 60]) as level, generate_series(1, $2::int) as m`,
        [addons, minutes],
      );
    }

    /** Expects no query to read other submitters, levels or times, nor any jobs. */
    async function stays(when: string): Promise<void> {
      for (const addonId of [null, 'addon3']) {
        const { stat_rollups, ...others } = await touched(store, (sql) => readSnapshot(sql, addonId, 100));
        expect(stat_rollups, `roll-ups for a snapshot ${when}`).to.be.at.most(dayRollups);
        for (const [table, n] of Object.entries(others))
          expect(n, `${table} for a snapshot ${when}`).to.be.at.most(20);
      }
      const hour = await touched(store, async (sql) => {
        for (const name of metricNames)
          await readSeries(sql, metrics[name], planSeries('1m', '1h'), 'addon3');
      });
      // Its own rows, and those of all submitters because of the gaps.
      expect(hour.stat_rollups, `roll-ups for an hour of all metrics ${when}`).to.be.at.most(
        metricNames.length * 2 * 60,
      );
      const month = await touched(store, (sql) =>
        readSeries(sql, metrics.run_ms_p95, planSeries('1h', '30d'), null),
      );
      expect(month.stat_rollups, `roll-ups for a month ${when}`).to.be.at.most(721);
      const fold = await touched(store, (sql) => aggregateTallies(sql, 1_000, 100));
      for (const [table, n] of Object.entries(fold))
        expect(n, `${table} for a fold ${when}`).to.be.at.most(60);
      const forget = await touched(store, (sql) => pruneRollups(sql, 1, 33 * 3_600_000, 10));
      expect(forget.stat_rollups, `roll-ups for forgetting ten ${when}`).to.be.at.most(40);
    }

    it("touches few rows whatever the planner's statistics say", async function () {
      this.timeout(120_000);
      const engine = engineOn(store.database);
      await store.database.query('analyze', []);
      await submitted(engine, { addon_id: 'addon1' }, { addon_id: 'addon3' });
      await fill();
      await stays('after an ANALYZE of empty tables');
      await store.database.query('analyze', []);
      await stays('after an ANALYZE of full ones');
      await engine.stop();
    });
  });
});

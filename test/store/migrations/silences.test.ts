/**
 * The guarantee: leases continue when heartbeat counts are added. The migration rewrites no row, and views
 * stay as they are.
 */
import { expect } from 'chai';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { contractViewNames } from '../../../src/store/schema/contract-views.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { migrationsFrom } from '../../support/history.ts';
import { caller, engineOn, submitted } from '../../support/jobs.ts';
import { acquired, beatFor, releaseFor } from '../../support/lease-helpers.ts';

const before = '0008-lean-history';
const tables = ['live_jobs', 'job_outcomes', 'leases'];

describe('the migration that adds heartbeat counts', () => {
  onEveryEngine((kind) => {
    it("reverts and repeats under active leases and users' views", async () => {
      const store = await kind.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        await migrate(database);
        const engine = engineOn(database);
        const columns = async () =>
          database.query<{ table: string }>(
            `select table_name::text as table from information_schema.columns
            where column_name in ('heartbeats', 'longest_silence_ms', 'longest_silence_since')
              and table_name = any ($1) order by 1`,
            [`{${tables.join(',')}}`],
          );
        expect(await columns()).to.have.length(9);
        await submitted(engine, {}, { max_attempts: 2, retry_backoff_s: 600 }, {});
        const [done, again, kept] = [await acquired(engine), await acquired(engine), await acquired(engine)];
        for (const grant of [done, again, kept]) {
          // The database's clock counts whole milliseconds here, so the heartbeat comes after the grant.
          await database.query("update live_jobs set started_at = started_at - interval '5 ms'", []);
          await engine.leases.heartbeat(beatFor(grant), caller);
        }
        await engine.leases.release(releaseFor(done), caller);
        await engine.leases.release(
          releaseFor(again, { status: 'FAILED', error: 'no', retryable: true }),
          caller,
        );

        await database.orm.migrator.down({ to: before });
        expect(await columns()).to.deep.equal([]);
        for (const name of [...tables, ...contractViewNames])
          await database.query(`create view our_${name} as select * from ${name}`, []);
        const files = () =>
          database.query(
            'select name, pg_relation_filenode(name::regclass)::text as file from unnest($1::text[]) as name',
            [`{${tables.join(',')}}`],
          );
        const were = await files();

        expect(await migrate(database)).to.deep.equal(migrationsFrom('0009-silences'));
        expect(await columns()).to.have.length(9);
        expect(await files()).to.deep.equal(were);
        for (const name of [...tables, ...contractViewNames])
          expect(await database.query(`select * from our_${name}`, []), name).not.to.deep.equal([]);

        // Counts from before the migration are unknown, and later ones are complete.
        await engine.leases.heartbeat(beatFor(kept), caller);
        for (const { lease, job } of [done, again, kept]) {
          const { attempts } = await engine.jobs.explain(job.jobId, caller);
          expect(attempts.map(({ lease: { leaseId }, signs }) => [leaseId, signs])).to.deep.equal([
            [lease.leaseId, { heartbeats: null, longestSilence: null, survived: null }],
          ]);
        }
        await engine.leases.release(releaseFor(kept), caller);
        await submitted(engine, {});
        const next = await acquired(engine);
        await engine.leases.heartbeat(beatFor(next), caller);
        const { attempts } = await engine.leases.explain(next.lease.leaseId, caller);
        expect(attempts[0]?.signs.heartbeats).to.equal(1);
        await engine.stop();
      } finally {
        await database.close();
        await store.remove();
      }
    });

    it('refuses to revert under views that name its columns, and loses nothing', async () => {
      const store = await kind.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        await migrate(database);
        const engine = engineOn(database);
        await submitted(engine, {});
        const grant = await acquired(engine);
        await engine.leases.heartbeat(beatFor(grant), caller);
        await database.query('create view our_jobs as select * from live_jobs', []);
        const undone = database.orm.migrator.down({ to: before }).then(
          () => 'undone',
          (error: Error) => error.message,
        );
        expect(await undone).to.match(
          /cannot drop column \w+ of table live_jobs because other objects depend on it/,
        );
        expect(await database.query('select heartbeats from our_jobs', [])).to.deep.equal([
          { heartbeats: 1 },
        ]);
        expect(await migrate(database)).to.deep.equal([]);

        await database.query('drop view our_jobs', []);
        await database.orm.migrator.down({ to: before });
        expect(await migrate(database)).to.deep.equal(migrationsFrom('0009-silences'));
        await engine.stop();
      } finally {
        await database.close();
        await store.remove();
      }
    });
  });
});

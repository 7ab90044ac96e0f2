/**
 * The guarantee: events and leases are the same after the lean history is reverted to full rows, and
 * continue.
 */
import { expect } from 'chai';
import type { JobEvent } from '../../../src/domain/jobs/job.ts';
import { eventNamed } from '../../../src/domain/jobs/state-machine.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { contractViewNames } from '../../../src/store/schema/contract-views.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { migrationsFrom } from '../../support/history.ts';
import { caller, engineOn, submitted } from '../../support/jobs.ts';
import { acquired, releaseFor } from '../../support/lease-helpers.ts';

const before = '0007-lanes';

describe('the migration to a lean history', () => {
  onEveryEngine((kind) => {
    it("keeps the contract's views, and the views that users built on them", async () => {
      const store = await kind.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        await migrate(database);
        const columnsOf = async (view: string): Promise<string[]> => {
          const rows = await database.query<{ name: string; type: string }>(
            `select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
            where attrelid = $1::regclass order by attnum`,
            [view],
          );
          return rows.map(({ name, type }) => `null::${type} as ${name}`);
        };
        const columns = new Map<string, string[]>();
        for (const view of contractViewNames) columns.set(view, await columnsOf(view));
        await database.orm.migrator.down({ to: before });
        // Creates the views of the version before, which had other contents under the same names.
        for (const [view, they] of columns) {
          await database.query(`create view ${view} as select ${they.join(', ')}`, []);
          await database.query(`create view our_${view} as select * from ${view}`, []);
        }
        expect(await migrate(database)).to.deep.equal(migrationsFrom('0008-lean-history'));
        for (const view of contractViewNames)
          expect(await database.query(`select * from our_${view}`, [])).to.deep.equal([]);
      } finally {
        await database.close();
        await store.remove();
      }
    });

    it('reverts with every event and lease, and numbers later events above them', async () => {
      const store = await kind.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        await migrate(database);
        const engine = engineOn(database);
        const told: JobEvent[] = [];
        const leaseIds: string[] = [];
        for (const end of [{}, { status: 'FAILED', error: 'no' }, { status: 'SUCCEEDED' }] as const) {
          const [job] = await submitted(engine, {});
          const grant = await acquired(engine);
          leaseIds.push(grant.lease.leaseId);
          await engine.leases.release(releaseFor(grant, end), caller);
          told.push(...(await engine.jobs.events(job?.jobId as string, {}, caller)).items);
        }
        await engine.stop();
        await database.orm.migrator.down({ to: before });
        const rows = await database.query<{ event_id: string; type: number; data: object | null }>(
          'select event_id::text as event_id, type, data from job_events order by job_events.event_id',
          [],
        );
        expect(rows.map(({ event_id, type }) => [event_id, eventNamed(type)])).to.deep.equal(
          told.map(({ eventId, type }) => [eventId, type]),
        );
        for (const [i, { data }] of rows.entries()) expect(told[i]?.data).to.include(data ?? {});
        const leases = await database.query<{ lease_id: string }>(
          'select lease_id from leases order by lease_id',
          [],
        );
        expect(leases.map(({ lease_id }) => lease_id)).to.deep.equal(leaseIds);
        const [next] = await database.query<{ event_id: string }>(
          "insert into job_events (at, job_id, type, actor) values (now(), gen_random_uuid(), 0, 'a') returning event_id::text as event_id",
          [],
        );
        expect(Number(next?.event_id)).to.be.above(Number(rows.at(-1)?.event_id));
        expect(await migrate(database)).to.deep.equal(migrationsFrom('0008-lean-history'));
      } finally {
        await database.close();
        await store.remove();
      }
    });
  });
});

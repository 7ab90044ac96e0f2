/**
 * The guarantee: a submission is told once, by the number and the time it had, whether it was made before submissions were told
 * from their jobs or after it, and after that has been undone; and places in line go on where they were.
 */
import { expect } from 'chai';
import type { JobEvent } from '../../src/domain/job.ts';
import { eventNumber } from '../../src/domain/machine.ts';
import type { Database } from '../../src/store/database.ts';
import { migrate } from '../../src/store/migrate.ts';
import { openDatabase } from '../../src/store/open.ts';
import { readEventDays } from '../../src/store/statements/event-days.ts';
import { acquired } from '../engine/leasing.ts';
import { onEveryEngine, type TestStore } from '../support/engines.ts';
import { caller, engineOn, submitted } from '../support/jobs.ts';

const before = '0009-silences';
const migration = '0010-submissions';
const submission = eventNumber('JOB_SUBMITTED');

/** Writes the row of a job's submission as the version before did, and takes its number from the other count. */
const asBefore = (database: Database) =>
  database.query(
    `with told as (
      insert into job_events (at, job_id, type, to_state, actor, data)
      select created_at, job_id, ${submission}, 0, addon_id, '{"priority": "NORMAL"}' from jobs order by seq
      returning job_id
    ), numbered as (
      select job_id, nextval('job_seq') as seq from (select job_id from jobs order by seq) in_order
    ), moved as (
      update live_jobs set seq = numbered.seq from numbered where numbered.job_id = live_jobs.job_id
    )
    update jobs set seq = numbered.seq from numbered where numbered.job_id = jobs.job_id`,
    [],
  );

describe('the migration of submissions', () => {
  onEveryEngine((kind) => {
    let store: TestStore;
    let database: Database;
    beforeEach(async () => {
      store = await kind.create({ empty: true });
      database = await openDatabase(store.options);
      await migrate(database);
    });
    afterEach(async () => {
      await database.close();
      await store.remove();
    });

    const rows = async () =>
      (
        await database.query<{ event_id: string }>(
          `select event_id::text as event_id from job_events where type = ${submission} order by job_events.event_id`,
          [],
        )
      ).map(({ event_id }) => event_id);
    const viewed = async () =>
      (
        await database.query<{ id: string }>(
          "select id::text as id from scheduler_events told where event_type = 'JOB_SUBMITTED' order by told.id",
          [],
        )
      ).map(({ id }) => id);

    it('tells what was submitted before and after it, once and in order, and can be undone', async () => {
      const engine = engineOn(database);
      try {
        const [old] = await submitted(engine, {});
        await database.orm.migrator.down({ to: before });
        // Undone, the row is there: with the number and the time that were told.
        const [undone] = await database.query<{ event_id: string; at: string; created_at: string }>(
          `select event_id::text as event_id, at::text as at, created_at::text as created_at
          from job_events join jobs on jobs.job_id = job_events.job_id`,
          [],
        );
        expect(undone?.at).to.equal(undone?.created_at);
        await database.query('delete from job_events', []);
        await asBefore(database);
        const [number] = await rows();

        expect(await migrate(database)).to.deep.equal([migration]);
        const [young] = await submitted(engine, {});
        const history = async (jobId = ''): Promise<readonly JobEvent[]> =>
          (await engine.reader.events(jobId, {}, caller)).items;
        const [[first, ...more], [second]] = [await history(old?.jobId), await history(young?.jobId)];
        expect(first).to.include({ type: 'JOB_SUBMITTED', eventId: number });
        expect(more).to.deep.equal([]);
        expect(second).to.include({ type: 'JOB_SUBMITTED', jobId: young?.jobId });
        expect(second?.data).to.deep.equal({ ...first?.data });
        expect(Number(second?.eventId)).to.be.above(Number(number));
        expect(await rows()).to.deep.equal([number]);
        expect(await viewed()).to.deep.equal([number, second?.eventId]);

        // The older one is first in line, and what happens to both is told after their submissions.
        for (const { jobId } of [old, young] as { jobId: string }[]) {
          const grant = await acquired(engine);
          expect(grant.job.jobId).to.equal(jobId);
          const ids = (await history(jobId)).map(({ eventId }) => Number(eventId));
          expect(ids).to.have.length(2);
          expect(ids).to.deep.equal(ids.toSorted((a, b) => a - b));
        }

        await database.orm.migrator.down({ to: before });
        expect(await rows()).to.deep.equal([number, second?.eventId]);
        expect(await viewed()).to.deep.equal([number, second?.eventId]);
        const [next] = await database.query<{ seq: string }>("select nextval('job_seq')::text as seq", []);
        expect(Number(next?.seq)).to.be.above(Number(second?.eventId));
      } finally {
        await engine.stop();
      }
    });

    it('writes no row, where it is undone, for a day whose part is gone', async () => {
      const engine = engineOn(database);
      try {
        await submitted(engine, {});
        await submitted(engine, {});
        for (const { name, from } of (await readEventDays(database)).parts) {
          if (from !== null) continue;
          await database.query(`alter table job_events detach partition ${name}`, []);
          await database.query(`drop table ${name}`, []);
        }
        const { today, parts } = await readEventDays(database);
        const lastsSince = Math.min(...parts.map(({ from }) => from ?? 0)) - today;
        await database.query(
          'update jobs set created_at = created_at + make_interval(days => $1) where seq = (select min(seq) from jobs)',
          [lastsSince - 1],
        );
        await database.query(
          'update jobs set created_at = created_at + make_interval(days => $1) where seq = (select max(seq) from jobs)',
          [lastsSince],
        );
        await database.orm.migrator.down({ to: before });
        expect(await rows()).to.have.length(1);
      } finally {
        await engine.stop();
      }
    });
  });
});

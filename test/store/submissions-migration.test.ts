/**
 * The guarantee: a submission is told once, by the number and the time it had, whether it was made before submissions were told
 * from their jobs or after it, and after that has been undone; and places in line go on where they were.
 */
import { expect } from 'chai';
import type { JobEvent } from '../../src/domain/job.ts';
import { eventNumber, stateNumber } from '../../src/domain/machine.ts';
import type { Engine } from '../../src/engine/engine.ts';
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

/** Makes jobs what the version before has left of them: with rows of their submissions, and places of a count of their own. */
const asBefore = (database: Database) =>
  database.query(
    `with told as (
      insert into job_events (at, job_id, type, to_state, actor, data)
      select created_at, job_id, ${submission}, ${stateNumber('QUEUED')}, addon_id,
        jsonb_build_object('priority', (array['URGENT', 'HIGH', 'NORMAL', 'LOW'])[priority + 1])
      from jobs order by seq
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
    let engine: Engine;
    beforeEach(async () => {
      store = await kind.create({ empty: true });
      database = await openDatabase(store.options);
      await database.orm.migrator.up({ to: before });
      engine = engineOn(database);
    });
    afterEach(async () => {
      await engine.stop();
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
    const viewed = () =>
      database.query<{ id: string; ts: string; data_json: object }>(
        `select id::text as id, ts::text as ts, data_json from scheduler_events told
        where event_type = 'JOB_SUBMITTED' order by told.id`,
        [],
      );
    const history = async (jobId = ''): Promise<readonly JobEvent[]> =>
      (await engine.reader.events(jobId, {}, caller)).items;

    for (const [name, sequence] of [
      ['places were', 'job_seq'],
      ['the history was', 'job_events_event_id_seq'],
    ]) {
      it(`tells each once and in order, and can be undone, where ${name} counted further`, async () => {
        await database.query(`select setval('${sequence}', 1000000)`, []);
        const [old] = await submitted(engine, { priority: 'URGENT' });
        await asBefore(database);
        const [number] = await rows();
        const [was] = await viewed();

        expect(await migrate(database)).to.deep.equal([migration]);
        const [young] = await submitted(engine, { priority: 'URGENT' });
        const [[first, ...more], [second]] = [await history(old?.jobId), await history(young?.jobId)];
        expect(first).to.include({ type: 'JOB_SUBMITTED', eventId: number });
        expect(more).to.deep.equal([]);
        expect(second).to.include({ type: 'JOB_SUBMITTED', jobId: young?.jobId });
        expect(second?.data).to.deep.equal({ ...first?.data });
        expect(second?.data).to.include({ priority: 'URGENT' });
        expect(Number(second?.eventId)).to.be.above(1_000_000);
        expect(await rows()).to.deep.equal([number]);
        const [seen, told, ...others] = await viewed();
        expect(seen).to.deep.equal(was);
        expect(told).to.include({ id: second?.eventId });
        expect(told?.data_json).to.deep.equal(was?.data_json);
        expect(others).to.deep.equal([]);

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
        expect(await viewed()).to.deep.equal([seen, told]);
        const [next] = await database.query<{ seq: string }>("select nextval('job_seq')::text as seq", []);
        expect(Number(next?.seq)).to.be.above(Number(second?.eventId));
        expect(await migrate(database)).to.deep.equal([migration]);
        expect(await viewed()).to.deep.equal([seen, told]);
      });
    }

    it('tells nothing of a submission whose row was too old to be kept', async () => {
      const [old] = await submitted(engine, {});
      await asBefore(database);
      await database.query('delete from job_events', []);
      await migrate(database);
      expect(await history(old?.jobId)).to.deep.equal([]);
      expect(await viewed()).to.deep.equal([]);
    });

    it('writes no row, where it is undone, for a day that has no part', async () => {
      await migrate(database);
      for (let i = 0; i < 3; i++) await submitted(engine, {});
      const { today } = await readEventDays(database);
      const dateOf = (day: number) => new Date((today + day) * 86_400_000).toISOString().slice(0, 10);
      for (const { name } of (await readEventDays(database)).parts) {
        await database.query(`alter table job_events detach partition ${name}`, []);
        await database.query(`drop table ${name}`, []);
      }
      const name = `job_events_d${dateOf(-5).replaceAll('-', '')}`;
      await database.query(
        `create table ${name} partition of job_events (primary key (job_id, event_id))
        for values from ('${dateOf(-5)} 00:00:00+00') to ('${dateOf(-4)} 00:00:00+00')`,
        [],
      );
      // One on that day, one the day before, and one today.
      await database.query(
        `update jobs set created_at = created_at - make_interval(days => (array[0, 5, 6])[nth])
        from (select job_id, row_number() over (order by seq) as nth from jobs) numbered
        where numbered.job_id = jobs.job_id`,
        [],
      );
      await database.orm.migrator.down({ to: before });
      expect(await rows()).to.have.length(1);
    });
  });
});

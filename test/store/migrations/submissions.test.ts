/**
 * The guarantee: each submission has one event with its number and time. This holds for submissions from
 * before the migration, which have rows, from after it, when events are derived from jobs, and after a
 * revert. Queue positions continue.
 */
import { expect } from 'chai';
import type { JobEvent } from '../../../src/domain/jobs/job.ts';
import { eventNumber, stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import type { Database } from '../../../src/store/database.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { readEventPartitions } from '../../../src/store/sql/events/partitions.ts';
import { onEveryEngine, type TestStore } from '../../support/engines.ts';
import { migrationsFrom } from '../../support/history.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired } from '../../support/lease-helpers.ts';

const before = '0009-silences';
const migration = '0010-submissions';
const submission = eventNumber('JOB_SUBMITTED');
const [queued, leased, done] = [stateNumber('QUEUED'), stateNumber('LEASED'), stateNumber('DONE')];

/** Jobs of schema version 0009: one has ended, one is leased, and two more urgent ones are queued. */
const old = {
  done: '01900000-0000-7000-8000-000000000001',
  leased: '01900000-0000-7000-8000-000000000002',
  first: '01900000-0000-7000-8000-000000000003',
  second: '01900000-0000-7000-8000-000000000004',
};
const lease = {
  done: '02900000-0000-7000-8000-000000000001',
  leased: '02900000-0000-7000-8000-000000000002',
};
const token = '03900000-0000-4000-8000-000000000001';

/** Literal SQL, so that later versions of the code do not affect this schema. One statement each. */
const writeOld = [
  `insert into lanes (lane_key, stream, addon_id, job_type, requires, heavy) values ('lane', '', 'a', 't', '{}', '{}')`,
  `insert into jobs (job_id, seq, lane_id, addon_id, job_type, priority, cost_units, constraints, payload, is_unique, tags,
    max_attempts, retry_backoff_s, bytes, created_at)
  select job_id, nextval('job_seq'), lane_id, 'a', 't', priority, 1, '{}', '{}', false, '{}', 1, 2, 4, clock_timestamp()
  from lanes, (values ('${old.done}'::uuid, 2), ('${old.leased}', 2), ('${old.first}', 0), ('${old.second}', 0))
    as given (job_id, priority)`,
  `insert into job_events (at, job_id, type, to_state, actor, data)
  select created_at, job_id, ${submission}, ${queued}, 'a',
    jsonb_build_object('priority', (array['URGENT', 'HIGH', 'NORMAL', 'LOW'])[priority + 1])
  from jobs order by seq`,
  `insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, attempt, fence, ttl_s, expires_at)
  select clock_timestamp(), job_id, lease_id, ${eventNumber('LEASE_GRANTED')}, ${queued}, ${leased}, 'w', 1,
    nextval('lease_fence'), 3600, clock_timestamp() + interval '1 hour'
  from (values ('${old.done}'::uuid, '${lease.done}'::uuid), ('${old.leased}', '${lease.leased}')) as given (job_id, lease_id)`,
  `insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, release_status)
  values (clock_timestamp(), '${old.done}', '${lease.done}', ${eventNumber('JOB_DONE')}, ${leased}, ${done}, 'w', 0)`,
  `insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, started_at, finished_at, fence,
    lease_token, ttl_s, lease_state, last_heartbeat_at, expires_at, release_status)
  select job_id, ${done}, attempt, actor, lease_id, false, at, clock_timestamp(), fence, '${token}', ttl_s, 1, at, expires_at, 0
  from job_events where job_id = '${old.done}' and fence is not null`,
  `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, attempts, attempts_limit, claims_lost,
    cancel_requested, updated_at, ready_at)
  select job_id, lane_id, seq, priority, 1, 4, ${queued}, 0, 1, 0, false, created_at, created_at
  from jobs where job_id <> '${old.done}'`,
  `update live_jobs live set state = ${leased}, attempts = 1, claimed_by = actor, lease_id = event.lease_id, started_at = at,
    lease_token = '${token}', fence = event.fence, lease_ttl_s = event.ttl_s, last_heartbeat_at = at,
    expires_at = event.expires_at, check_at = event.expires_at
  from job_events event
  where live.job_id = '${old.leased}' and event.job_id = live.job_id and event.fence is not null`,
  'update capacity set used = used + 1',
];

describe('the migration of submissions', () => {
  onEveryEngine((kind) => {
    let store: TestStore;
    let database: Database;
    let engine: TestedEngine;
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

    const write = async () => {
      for (const text of writeOld) await database.query(text, []);
    };
    /** The event ids of the rows of submissions. */
    const rows = async () =>
      (
        await database.query<{ event_id: string }>(
          `select event_id::text as event_id from job_events where type = ${submission} order by job_events.event_id`,
          [],
        )
      ).map(({ event_id }) => event_id);
    /** The whole history, as the contract's view shows it. */
    const viewed = () =>
      database.query<{ id: string; event_type: string; job_id: string; data_json: object }>(
        `select id::text as id, ts::text as ts, entity_type, entity_id::text as entity_id, event_type, data_json,
          coalesce(data_json ->> 'job_id', entity_id::text) as job_id
        from scheduler_events told order by told.id`,
        [],
      );
    const history = async (jobId = ''): Promise<readonly JobEvent[]> =>
      (await engine.jobs.events(jobId, {}, caller)).items;

    for (const [name, sequence] of [
      ['places were', 'job_seq'],
      ['the history was', 'job_events_event_id_seq'],
    ]) {
      it(`shows each submission once and in order, and reverts, where ${name} counted further`, async () => {
        await database.query(`select setval('${sequence}', 1000000)`, []);
        await write();
        const told = await viewed();
        expect(told.map(({ event_type }) => event_type)).to.have.members([
          ...Array.from({ length: 4 }, () => 'JOB_SUBMITTED'),
          ...['LEASE_GRANTED', 'LEASE_GRANTED', 'JOB_RUNNING', 'LEASE_RELEASED', 'JOB_DONE'],
        ]);
        const numbers = await rows();
        expect(numbers).to.have.length(4);

        // No later migration changes the events of these jobs.
        for (const next of migrationsFrom(migration)) {
          await database.orm.migrator.up({ to: next });
          expect(await viewed(), next).to.deep.equal(told);
        }
        expect(await migrate(database)).to.deep.equal([]);
        for (const jobId of Object.values(old)) {
          const expected = told.filter(({ job_id }) => job_id === jobId);
          expect((await history(jobId)).map(({ eventId, type }) => [eventId, type])).to.deep.equal(
            expected.map(({ id, event_type }) => [id, event_type]),
          );
        }

        const [young] = await submitted(engine, { priority: 'URGENT' });
        const [[first], [event, ...more]] = [await history(old.first), await history(young?.jobId)];
        expect(event).to.include({ type: 'JOB_SUBMITTED', jobId: young?.jobId });
        expect(event?.data).to.deep.equal(first?.data);
        expect(event?.data).to.include({ priority: 'URGENT' });
        expect(more).to.deep.equal([]);
        expect(Number(event?.eventId)).to.be.above(1_000_000);
        expect(Number(event?.eventId)).to.be.above(Number(told.at(-1)?.id));
        expect(await rows()).to.deep.equal(numbers);

        // The older jobs are first in the queue, and their later events follow their submissions.
        for (const jobId of [old.first, old.second, young?.jobId]) {
          const grant = await acquired(engine);
          expect(grant.job.jobId).to.equal(jobId);
          const ids = (await history(jobId)).map(({ eventId }) => Number(eventId));
          expect(ids).to.have.length(2);
          expect(ids).to.deep.equal(ids.toSorted((a, b) => a - b));
        }

        const seen = await viewed();
        expect(seen.slice(0, told.length)).to.deep.equal(told);
        expect(seen).to.have.length(told.length + 4);
        await database.orm.migrator.down({ to: before });
        expect(await rows()).to.deep.equal([...numbers, event?.eventId]);
        expect(await viewed()).to.deep.equal(seen);
        const [next] = await database.query<{ seq: string }>("select nextval('job_seq')::text as seq", []);
        expect(Number(next?.seq)).to.be.above(Number(event?.eventId));
        expect(await migrate(database)).to.deep.equal(migrationsFrom(migration));
        expect(await viewed()).to.deep.equal(seen);
      });
    }

    it('shows no event for a submission whose row was already deleted', async () => {
      await write();
      await database.query('delete from job_events', []);
      await migrate(database);
      for (const jobId of Object.values(old)) expect(await history(jobId)).to.deep.equal([]);
      expect(await viewed()).to.deep.equal([]);
    });

    it('writes no row on revert for a day without a partition', async () => {
      await migrate(database);
      for (let i = 0; i < 3; i++) await submitted(engine, {});
      const { today, parts } = await readEventPartitions(database);
      const dateOf = (day: number) => new Date((today + day) * 86_400_000).toISOString().slice(0, 10);
      for (const { name } of parts) {
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

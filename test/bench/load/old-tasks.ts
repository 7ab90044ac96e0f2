/** What the load process can be asked to do to make a store old: jobs that are over, and somebody who has looked away. */
import { Client } from 'pg';
import { eventNumber, stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import { leaseStateNumber, statusNumber } from '../../../src/store/sql/leases/record.ts';
import type { FloorPlace } from './floor.ts';
import { job } from './messages.ts';

const jobsPerStatement = 50_000;

/** Jobs of yesterday with their outcome, their lease and their history, as a worker of a stream leaves them. */
const insertOver = `
with over as materialized (
  select ('0' || to_hex(ms + n) || '70008000000000000000')::uuid as job_id,
    ('0' || to_hex(ms + n) || '70018000000000000000')::uuid as lease_id, at
  from (select now() - interval '1 day' as at) day,
    (select (extract(epoch from now() - interval '1 day') * 1000)::bigint as ms) clock,
    generate_series($1::int, $2::int) as n
), job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, stream, priority, cost_units, constraints, payload, is_unique,
    tags, max_attempts, retry_backoff_s, bytes, created_at)
  select job_id, nextval('job_events_event_id_seq'), 0, $3::text, $4::text, $5::text, 2, 1, '{}', $6::jsonb, false, '{bench}', 3, 2,
    length($6::text), at
  from over
), outcome as (
  insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, started_at, finished_at, fence,
    lease_token, ttl_s, lease_state, last_heartbeat_at, expires_at, release_status)
  select job_id, ${stateNumber('DONE')}, 1, 'worker-0', lease_id, false, at, at, nextval('lease_fence'), lease_id, 60,
    ${leaseStateNumber('RELEASED')}, at, at + interval '60 s', ${statusNumber('SUCCEEDED')}
  from over
)
insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, fence, attempt, ttl_s, expires_at,
  release_status)
select at, job_id, lease_id, step.type, step.was, step.now, 'worker-0',
  case when granted then 1 end, case when granted then 1 end, case when granted then 60 end,
  case when granted then at end, case when step.now = ${stateNumber('DONE')} then ${statusNumber('SUCCEEDED')} end
from over, (values
  (${eventNumber('LEASE_GRANTED')}, ${stateNumber('QUEUED')}, ${stateNumber('RUNNING')}, true),
  (${eventNumber('JOB_DONE')}, ${stateNumber('RUNNING')}, ${stateNumber('DONE')}, false)
) as step (type, was, now, granted)`;

let looker: Client | undefined;

export const oldTasks = {
  async seedOver(on: { place: FloorPlace; stream: string; jobs: number }): Promise<void> {
    const [{ openStore }, { migrate }] = await Promise.all([
      import('./seed.ts'),
      import('../../../src/store/migrate.ts'),
    ]);
    const database = await openStore(on.place);
    try {
      await migrate(database);
      for (let from = 0; from < on.jobs; from += jobsPerStatement) {
        const to = Math.min(from + jobsPerStatement, on.jobs) - 1;
        const words = [job.addonId, job.jobType, on.stream, JSON.stringify(job.payload)];
        await database.query(insertOver, [from, to, ...words]);
      }
    } finally {
      await database.close();
    }
  },

  /** Opens a snapshot, which keeps every row that it might still see, until it is dropped. */
  async holdSnapshot({ url }: { url: string }): Promise<void> {
    looker = new Client({ connectionString: url, application_name: 'bench snapshot' });
    await looker.connect();
    await looker.query('begin isolation level repeatable read');
    await looker.query('select count(*) from capacity');
  },

  dropSnapshot: () => closeSnapshot(),
};

export async function closeSnapshot(): Promise<void> {
  await looker?.end();
  looker = undefined;
}

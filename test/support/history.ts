/**
 * What the store keeps of what is over, as tests ask for it: an ended lease is in a table of its own where its job went on,
 * and in the job's outcome where it did not; and a row of the history may tell of up to three events.
 */

import { eventNumber, stateNumber } from '../../src/domain/jobs/state-machine.ts';
import { migrations } from '../../src/store/migrations/index.ts';
import { submissions } from '../../src/store/sql/events/record.ts';

/** All leases that are over, to select from. */
export const endedLeases = `(
  select lease_id, job_id, state, release_status, granted_at, expires_at, ended_at, heartbeats,
    longest_silence_ms
  from leases
  union all
  select lease_id, job_id, lease_state, release_status, started_at, expires_at, finished_at, heartbeats,
    longest_silence_ms
  from job_outcomes where fence is not null
) ended_leases`;

const [leased, running] = [stateNumber('LEASED'), stateNumber('RUNNING')];

/** All events, to select from. */
export const allEvents = `(
  select event_id + step as event_id, at, job_id, lease_id, step_type as type, step_from as from_state,
    step_to as to_state, actor, data
  from job_events row cross join lateral (
    select 0 as step, type as step_type, from_state as step_from, to_state as step_to where release_status is null
    union all
    select 0, ${eventNumber('JOB_RUNNING')}, ${leased}, ${running}
    where release_status is not null and from_state = ${leased}
    union all
    select 1, ${eventNumber('LEASE_RELEASED')}, ${running}, ${running} where release_status is not null
    union all
    select 2, type, ${running}, to_state where release_status is not null
  ) told
  union all
  select event_id, at, job_id, lease_id, type, from_state, to_state, actor, data from ${submissions} submitted
) all_events`;

/** The names of a migration and of all that follow it. */
export const migrationsFrom = (first: string): string[] =>
  migrations.map(({ name }) => name).filter((name) => name >= first);

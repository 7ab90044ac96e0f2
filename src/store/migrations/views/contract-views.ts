import { contractState } from '../../../domain/jobs/claim-policy.ts';
import { finalStatuses, priorities } from '../../../domain/jobs/job.ts';
import {
  type EventType,
  eventNumber,
  eventTypes,
  leasedStates,
  stateNumber,
  states,
} from '../../../domain/jobs/state-machine.ts';
import { leaseStates } from '../../../domain/leases/lease.ts';
import { sqlWord } from '../../connection/sql.ts';
import { submissions } from '../../sql/events/record.ts';

/**
 * The views that the queue contract recommends, with the contract's names. They serve people and their tools,
 * whose sessions have settings of their own. The server itself finds single jobs and leases by primary keys.
 *
 * A view depends on its tables themselves, not on their names. A migration that replaces such a table
 * therefore drops the views first and creates them again. Any other migration uses `create or replace`,
 * because users have built views on them and granted access to them.
 */

const stateWord = (number: string): string => sqlWord(states.map(contractState), number);
const isLeased = (live: string): string =>
  `${live}.lease_id is not null and ${live}.state in (${leasedStates.map(stateNumber).join(', ')})`;

const finals = states.map((state) =>
  state === 'DONE' ? 'SUCCEEDED' : finalStatuses.some((status) => status === state) ? state : '',
);

const jobRuns = `create or replace view scheduler_job_runs as
select job.job_id, job.addon_id, job.job_type, ${sqlWord(priorities, 'job.priority')} as priority, job.cost_units,
  ${stateWord('live.state')} as state, live.attempts, job.created_at, live.started_at,
  null::timestamptz as finished_at, live.claimed_by, live.lease_id, null::text as final_status,
  null::text as error_text, null::jsonb as result_json, null::jsonb as metrics_json
from live_jobs live join jobs job on job.job_id = live.job_id
union all
select job.job_id, job.addon_id, job.job_type, ${sqlWord(priorities, 'job.priority')}, job.cost_units,
  ${stateWord('outcome.state')}, outcome.attempts, job.created_at, outcome.started_at, outcome.finished_at,
  outcome.claimed_by, outcome.lease_id, ${sqlWord(finals, 'outcome.state')}, outcome.error_text, outcome.result,
  outcome.metrics
from job_outcomes outcome join jobs job on job.job_id = outcome.job_id`;

const leaseRuns = `create or replace view scheduler_lease_runs as
select live.lease_id, live.job_id, job.addon_id, live.cost_units, live.lease_ttl_s as ttl_sec,
  live.started_at as granted_at, live.last_heartbeat_at, null::timestamptz as released_at, live.expires_at,
  '${leaseStates[0]}' as state, null::text as release_status
from live_jobs live join jobs job on job.job_id = live.job_id
where ${isLeased('live')}
union all
select lease.lease_id, lease.job_id, job.addon_id, lease.cost_units, lease.ttl_s, lease.granted_at,
  lease.last_heartbeat_at, case when lease.state = ${leaseStates.indexOf('RELEASED')} then lease.ended_at end,
  lease.expires_at, ${sqlWord(leaseStates, 'lease.state')}, ${sqlWord(finalStatuses, 'lease.release_status')}
from leases lease join jobs job on job.job_id = lease.job_id
union all
select outcome.lease_id, outcome.job_id, job.addon_id, job.cost_units, outcome.ttl_s, outcome.started_at,
  outcome.last_heartbeat_at, case when outcome.lease_state = ${leaseStates.indexOf('RELEASED')} then outcome.finished_at end,
  outcome.expires_at, ${sqlWord(leaseStates, 'outcome.lease_state')}, ${sqlWord(finalStatuses, 'outcome.release_status')}
from job_outcomes outcome join jobs job on job.job_id = outcome.job_id where outcome.fence is not null`;

const leaseEvents: readonly EventType[] = ['LEASE_GRANTED', 'LEASE_RELEASED', 'LEASE_EXPIRED'];
const ofLeases = leaseEvents.map(eventNumber).join(', ');

const [leased, running] = [stateNumber('LEASED'), stateNumber('RUNNING')];

// One row for each event that a history row records; see `store/sql/events/record.ts`. Submissions are added
// below.
const told = `(
  select event.event_id + step.n as id, event.at, event.job_id, event.lease_id, event.actor,
    step.type, step.from_state, step.to_state,
    case when step.n = 1 and event.release_status is not null
      then jsonb_build_object('worker_id', event.actor, 'status', ${sqlWord(finalStatuses, 'event.release_status')})
      when step.type = event.type then coalesce(event.data, '{}') || case when event.fence is null then '{}'
        else jsonb_build_object('worker_id', event.actor, 'attempt', event.attempt, 'fence', event.fence,
          'ttl_sec', event.ttl_s,
          'expires_at', to_char(event.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
      else '{}' end as data
  from job_events event cross join lateral (
    select 0 as n, event.type, event.from_state, event.to_state where event.release_status is null
    union all
    select 0, ${eventNumber('JOB_RUNNING')}, ${leased}, ${running}
    where event.release_status is not null and event.from_state = ${leased}
    union all
    select 1, ${eventNumber('LEASE_RELEASED')}, ${running}, ${running} where event.release_status is not null
    union all
    select 2, event.type, ${running}, event.to_state where event.release_status is not null
  ) step
)`;

const event = (
  id: string,
  beside: string,
) => `${id}, event.at as ts, ${sqlWord(eventTypes, 'event.type')} as event_type,
  jsonb_build_object(${beside}, 'by', event.actor, 'from', ${stateWord('event.from_state')},
    'to', ${stateWord('event.to_state')}) || event.data as data_json`;
const ofJob = "'lease_id', event.lease_id";

const submitted = `  union all
  select 'JOB', event.job_id, ${event('event.event_id', ofJob)}
  from ${submissions} event
`;

// A lease's events are found through its job, because the history is keyed by job.
const events = (beside: string) => `create or replace view scheduler_events as
select id, ts, entity_type, entity_id, event_type, data_json from (
  select 'JOB' as entity_type, event.job_id as entity_id, ${event('event.id', ofJob)}
  from ${told} event where event.type not in (${ofLeases})
${beside}  union all
  select 'LEASE', lease.lease_id, ${event('event.id', "'job_id', event.job_id")}
  from (
    select leases.lease_id, leases.job_id from leases
    union all
    select outcome.lease_id, outcome.job_id from job_outcomes outcome where outcome.fence is not null
    union all
    select live.lease_id, live.job_id from live_jobs live where ${isLeased('live')}
  ) lease
  join ${told} event on event.job_id = lease.job_id and event.lease_id = lease.lease_id
  where event.type in (${ofLeases})
) told`;

/** In the order of creation. */
export const contractViews: readonly string[] = [jobRuns, leaseRuns, events(submitted)];
/** The views from the time when each submission had a row in the history. */
export const viewsBeforeSubmissions: readonly string[] = [jobRuns, leaseRuns, events('')];
export const contractViewNames = ['scheduler_job_runs', 'scheduler_lease_runs', 'scheduler_events'] as const;
export const dropContractViews = `drop view if exists ${contractViewNames.join(', ')}`;

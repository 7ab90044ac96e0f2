import { Migration } from '@mikro-orm/migrations';

/**
 * Adds the table from which older servers read whether they may still write, and repairs databases that ran
 * an earlier, unreleased form of migration 0010.
 *
 * That form did not create `submissions_told`, without which no history can be read. Its boundary is computed
 * again: jobs up to it have an event of their submission (type 0) in the history, or were created before 0010
 * ran. `executed_at` is rounded to a second; the jobs of that second still have their event.
 */
export class SchemaCompatibility extends Migration {
  override up(): void {
    this.addSql(`create table schema_compatibility (
      migration text primary key,
      oldest_writer text not null,
      recorded_at timestamptz not null default clock_timestamp()
    )`);
    this.addSql(`create table if not exists submissions_told (
      told_id smallint primary key, after_seq bigint not null)`);
    this.addSql(`insert into submissions_told (told_id, after_seq)
      select 1, greatest(0,
        (select max(event_id) from job_events where type = 0),
        (select max(seq) from jobs where exists (
          select from job_events event where event.job_id = jobs.job_id and event.type = 0)),
        (select max(seq) from jobs where created_at < (
          select executed_at - interval '1 second' from leasehold_migrations where name = '0010-submissions')))
      where not exists (select from submissions_told where told_id = 1)`);
    this.addSql(`create or replace view scheduler_job_runs as
select job.job_id, job.addon_id, job.job_type, (array['URGENT', 'HIGH', 'NORMAL', 'LOW'])[job.priority + 1] as priority, job.cost_units,
  (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[live.state + 1] as state, live.attempts, job.created_at, live.started_at,
  null::timestamptz as finished_at, live.claimed_by, live.lease_id, null::text as final_status,
  null::text as error_text, null::jsonb as result_json, null::jsonb as metrics_json
from live_jobs live join jobs job on job.job_id = live.job_id
union all
select job.job_id, job.addon_id, job.job_type, (array['URGENT', 'HIGH', 'NORMAL', 'LOW'])[job.priority + 1], job.cost_units,
  (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[outcome.state + 1], outcome.attempts, job.created_at, outcome.started_at, outcome.finished_at,
  outcome.claimed_by, outcome.lease_id, (array['', '', '', '', '', '', 'SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'])[outcome.state + 1], outcome.error_text, outcome.result,
  outcome.metrics
from job_outcomes outcome join jobs job on job.job_id = outcome.job_id`);
    this.addSql(`create or replace view scheduler_lease_runs as
select live.lease_id, live.job_id, job.addon_id, live.cost_units, live.lease_ttl_s as ttl_sec,
  live.started_at as granted_at, live.last_heartbeat_at, null::timestamptz as released_at, live.expires_at,
  'ACTIVE' as state, null::text as release_status
from live_jobs live join jobs job on job.job_id = live.job_id
where live.lease_id is not null and live.state in (4, 5)
union all
select lease.lease_id, lease.job_id, job.addon_id, lease.cost_units, lease.ttl_s, lease.granted_at,
  lease.last_heartbeat_at, case when lease.state = 2 then lease.ended_at end,
  lease.expires_at, (array['ACTIVE', 'EXPIRED', 'RELEASED'])[lease.state + 1], (array['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'])[lease.release_status + 1]
from leases lease join jobs job on job.job_id = lease.job_id
union all
select outcome.lease_id, outcome.job_id, job.addon_id, job.cost_units, outcome.ttl_s, outcome.started_at,
  outcome.last_heartbeat_at, case when outcome.lease_state = 2 then outcome.finished_at end,
  outcome.expires_at, (array['ACTIVE', 'EXPIRED', 'RELEASED'])[outcome.lease_state + 1], (array['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'])[outcome.release_status + 1]
from job_outcomes outcome join jobs job on job.job_id = outcome.job_id where outcome.fence is not null`);
    this.addSql(`create or replace view scheduler_events as
select id, ts, entity_type, entity_id, event_type, data_json from (
  select 'JOB' as entity_type, event.job_id as entity_id, event.id, event.at as ts, (array['JOB_SUBMITTED', 'JOB_CLAIMED', 'JOB_PREPARING', 'JOB_LEASE_PENDING', 'LEASE_GRANTED', 'LEASE_DENIED', 'JOB_RUNNING', 'LEASE_RELEASED', 'LEASE_EXPIRED', 'CLAIM_EXPIRED', 'JOB_REQUEUED', 'JOB_DONE', 'JOB_FAILED', 'JOB_TIMEOUT', 'JOB_CANCEL_REQUESTED', 'JOB_CANCELED', 'JOB_DEAD_LETTERED', 'JOB_RETRIED', 'JOB_UNSCHEDULABLE'])[event.type + 1] as event_type,
  jsonb_build_object('lease_id', event.lease_id, 'by', event.actor, 'from', (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.from_state + 1],
    'to', (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.to_state + 1]) || event.data as data_json
  from (
  select event.event_id + step.n as id, event.at, event.job_id, event.lease_id, event.actor,
    step.type, step.from_state, step.to_state,
    case when step.n = 1 and event.release_status is not null
      then jsonb_build_object('worker_id', event.actor, 'status', (array['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.release_status + 1])
      when step.type = event.type then coalesce(event.data, '{}') || case when event.fence is null then '{}'
        else jsonb_build_object('worker_id', event.actor, 'attempt', event.attempt, 'fence', event.fence,
          'ttl_sec', event.ttl_s,
          'expires_at', to_char(event.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
      else '{}' end as data
  from job_events event cross join lateral (
    select 0 as n, event.type, event.from_state, event.to_state where event.release_status is null
    union all
    select 0, 6, 4, 5
    where event.release_status is not null and event.from_state = 4
    union all
    select 1, 7, 5, 5 where event.release_status is not null
    union all
    select 2, event.type, 5, event.to_state where event.release_status is not null
  ) step
) event where event.type not in (4, 7, 8)
  union all
  select 'JOB', event.job_id, event.event_id, event.at as ts, (array['JOB_SUBMITTED', 'JOB_CLAIMED', 'JOB_PREPARING', 'JOB_LEASE_PENDING', 'LEASE_GRANTED', 'LEASE_DENIED', 'JOB_RUNNING', 'LEASE_RELEASED', 'LEASE_EXPIRED', 'CLAIM_EXPIRED', 'JOB_REQUEUED', 'JOB_DONE', 'JOB_FAILED', 'JOB_TIMEOUT', 'JOB_CANCEL_REQUESTED', 'JOB_CANCELED', 'JOB_DEAD_LETTERED', 'JOB_RETRIED', 'JOB_UNSCHEDULABLE'])[event.type + 1] as event_type,
  jsonb_build_object('lease_id', event.lease_id, 'by', event.actor, 'from', (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.from_state + 1],
    'to', (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.to_state + 1]) || event.data as data_json
  from (
  select job.job_id, job.seq as event_id, job.created_at as at, null::uuid as lease_id,
    0::smallint as type, null::smallint as from_state,
    0::smallint as to_state, job.addon_id as actor,
    jsonb_build_object('priority', (array['URGENT', 'HIGH', 'NORMAL', 'LOW'])[job.priority + 1]) as data, null::int as attempt,
    null::bigint as fence, null::int as ttl_s, null::timestamptz as expires_at, null::smallint as release_status
  from jobs job where job.seq > (select after_seq from submissions_told where told_id = 1)
) event
  union all
  select 'LEASE', lease.lease_id, event.id, event.at as ts, (array['JOB_SUBMITTED', 'JOB_CLAIMED', 'JOB_PREPARING', 'JOB_LEASE_PENDING', 'LEASE_GRANTED', 'LEASE_DENIED', 'JOB_RUNNING', 'LEASE_RELEASED', 'LEASE_EXPIRED', 'CLAIM_EXPIRED', 'JOB_REQUEUED', 'JOB_DONE', 'JOB_FAILED', 'JOB_TIMEOUT', 'JOB_CANCEL_REQUESTED', 'JOB_CANCELED', 'JOB_DEAD_LETTERED', 'JOB_RETRIED', 'JOB_UNSCHEDULABLE'])[event.type + 1] as event_type,
  jsonb_build_object('job_id', event.job_id, 'by', event.actor, 'from', (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.from_state + 1],
    'to', (array['QUEUED', 'CLAIMED', 'PREPARING', 'LEASE_PENDING', 'RUNNING', 'RUNNING', 'DONE', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.to_state + 1]) || event.data as data_json
  from (
    select leases.lease_id, leases.job_id from leases
    union all
    select outcome.lease_id, outcome.job_id from job_outcomes outcome where outcome.fence is not null
    union all
    select live.lease_id, live.job_id from live_jobs live where live.lease_id is not null and live.state in (4, 5)
  ) lease
  join (
  select event.event_id + step.n as id, event.at, event.job_id, event.lease_id, event.actor,
    step.type, step.from_state, step.to_state,
    case when step.n = 1 and event.release_status is not null
      then jsonb_build_object('worker_id', event.actor, 'status', (array['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'])[event.release_status + 1])
      when step.type = event.type then coalesce(event.data, '{}') || case when event.fence is null then '{}'
        else jsonb_build_object('worker_id', event.actor, 'attempt', event.attempt, 'fence', event.fence,
          'ttl_sec', event.ttl_s,
          'expires_at', to_char(event.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
      else '{}' end as data
  from job_events event cross join lateral (
    select 0 as n, event.type, event.from_state, event.to_state where event.release_status is null
    union all
    select 0, 6, 4, 5
    where event.release_status is not null and event.from_state = 4
    union all
    select 1, 7, 5, 5 where event.release_status is not null
    union all
    select 2, event.type, 5, event.to_state where event.release_status is not null
  ) step
) event on event.job_id = lease.job_id and event.lease_id = lease.lease_id
  where event.type in (4, 7, 8)
) told`);
  }

  override down(): void {
    this.addSql('drop table schema_compatibility');
  }
}

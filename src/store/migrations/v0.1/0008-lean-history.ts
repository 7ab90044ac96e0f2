import { Migration } from '@mikro-orm/migrations';

/**
 * Fewer rows for a job: its outcome keeps its last lease, and one event records a lease's release together with
 * the job's next state. Rows that exist stay as they are.
 */
export class LeanHistory extends Migration {
  override up(): void {
    // A row records up to three events, and its number leaves room for theirs.
    this.addSql('alter sequence job_events_event_id_seq increment by 4');
    // The details of a grant, and the status of a release.
    this.addSql(`alter table job_events
      add column attempt int,
      add column fence bigint,
      add column ttl_s int,
      add column expires_at timestamptz,
      add column release_status smallint`);

    this.addSql(`alter table job_outcomes
      add column fence bigint,
      add column lease_token uuid,
      add column ttl_s int,
      add column lease_state smallint,
      add column last_heartbeat_at timestamptz,
      add column expires_at timestamptz,
      add column release_status smallint`);
    this.addSql('create unique index job_outcomes_lease on job_outcomes (lease_id) where fence is not null');
    this.addSql(
      'create index job_outcomes_worker on job_outcomes (claimed_by, lease_id) where fence is not null',
    );
    this.addSql(`create index job_outcomes_unreleased on job_outcomes (lease_state, lease_id)
      where lease_state <> 2`);

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
    this.addSql('drop view if exists scheduler_job_runs, scheduler_lease_runs, scheduler_events');
    this.addSql(`insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state,
      granted_at, last_heartbeat_at, expires_at, ended_at, release_status, requeued, error_text, error_detail, dead_lettered)
      select outcome.lease_id, outcome.job_id, outcome.attempts, outcome.claimed_by, job.cost_units, outcome.ttl_s,
        outcome.fence, outcome.lease_token, outcome.lease_state, outcome.started_at, outcome.last_heartbeat_at,
        outcome.expires_at, outcome.finished_at, outcome.release_status, false, outcome.error_text,
        outcome.error_detail, outcome.dead_stream is not null
      from job_outcomes outcome join jobs job on job.job_id = outcome.job_id where outcome.fence is not null`);
    this.addSql('drop index job_outcomes_lease, job_outcomes_worker, job_outcomes_unreleased');
    this.addSql(`alter table job_outcomes drop column fence, drop column lease_token, drop column ttl_s,
      drop column lease_state, drop column last_heartbeat_at, drop column expires_at, drop column release_status`);

    this.addSql(`with told as (
      insert into job_events (event_id, at, job_id, lease_id, type, from_state, to_state, actor, data)
      select event_id + step, at, job_id, lease_id, step_type, step_from, 5, actor, step_data
      from job_events event cross join lateral (values
        (0, 6, 4, null::jsonb),
        (1, 7, 5, jsonb_build_object('worker_id', actor,
          'status', (array['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'])[release_status + 1]))
      ) part (step, step_type, step_from, step_data)
      where release_status is not null and (step > 0 or from_state = 4)
    )
    update job_events set event_id = event_id + 2, from_state = 5 where release_status is not null`);
    this.addSql(`update job_events set data = jsonb_build_object('worker_id', actor, 'attempt', attempt, 'fence', fence,
      'ttl_sec', ttl_s, 'expires_at', to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
      where fence is not null`);
    this.addSql(`alter table job_events drop column attempt, drop column fence, drop column ttl_s,
      drop column expires_at, drop column release_status`);
    // The numbers that the last row left room for are in use now, so they are skipped.
    this.addSql("select nextval('job_events_event_id_seq')");
    this.addSql('alter sequence job_events_event_id_seq increment by 1');
  }
}

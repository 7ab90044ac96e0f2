import { Migration } from '@mikro-orm/migrations';
import { finalStatuses } from '../../../domain/jobs/job.ts';
import { eventNumber, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { leaseStates } from '../../../domain/leases/lease.ts';
import { sqlWord } from '../../connection/sql.ts';
import { dropContractViews, viewsBeforeSubmissions } from '../views/contract-views.ts';

const released = leaseStates.indexOf('RELEASED');

/**
 * Fewer rows for a job: its outcome keeps the lease that it ended with, and one event tells of a lease's release and of what
 * that did to its job. What was written before stays as it is.
 */
export class LeanHistory extends Migration {
  override up(): void {
    // An event tells of up to three things, and its number leaves room for theirs.
    this.addSql('alter sequence job_events_event_id_seq increment by 4');
    // What a grant says, and as what a lease was released.
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
      where lease_state <> ${released}`);

    for (const view of viewsBeforeSubmissions) this.addSql(view);
  }

  override down(): void {
    this.addSql(dropContractViews);
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

    const [leased, running] = [stateNumber('LEASED'), stateNumber('RUNNING')];
    this.addSql(`with told as (
      insert into job_events (event_id, at, job_id, lease_id, type, from_state, to_state, actor, data)
      select event_id + step, at, job_id, lease_id, step_type, step_from, ${running}, actor, step_data
      from job_events event cross join lateral (values
        (0, ${eventNumber('JOB_RUNNING')}, ${leased}, null::jsonb),
        (1, ${eventNumber('LEASE_RELEASED')}, ${running}, jsonb_build_object('worker_id', actor,
          'status', ${sqlWord(finalStatuses, 'release_status')}))
      ) part (step, step_type, step_from, step_data)
      where release_status is not null and (step > 0 or from_state = ${leased})
    )
    update job_events set event_id = event_id + 2, from_state = ${running} where release_status is not null`);
    this.addSql(`update job_events set data = jsonb_build_object('worker_id', actor, 'attempt', attempt, 'fence', fence,
      'ttl_sec', ttl_s, 'expires_at', to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
      where fence is not null`);
    this.addSql(`alter table job_events drop column attempt, drop column fence, drop column ttl_s,
      drop column expires_at, drop column release_status`);
    // The numbers that the last row left room for have been given out now, so they are passed over.
    this.addSql("select nextval('job_events_event_id_seq')");
    this.addSql('alter sequence job_events_event_id_seq increment by 1');
  }
}

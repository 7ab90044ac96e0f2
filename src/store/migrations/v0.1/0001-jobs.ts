import { Migration } from '@mikro-orm/migrations';

/** Jobs, their hot rows, their outcomes and their history. */
export class Jobs extends Migration {
  override up(): void {
    this.addSql(`create table lanes (
      lane_id serial primary key,
      lane_key text not null constraint lanes_lane_key_unique unique,
      stream text not null,
      addon_id text not null,
      job_type text not null,
      requires text[] not null,
      heavy text[] not null
    )`);
    this.addSql('create index lanes_addon on lanes (addon_id, job_type)');

    this.addSql('create sequence job_seq');
    this.addSql(`create table jobs (
      job_id uuid primary key,
      seq bigint not null,
      lane_id int not null,
      addon_id text not null,
      job_type text not null,
      stream text,
      priority smallint not null,
      cost_units int not null,
      constraints jsonb not null,
      payload jsonb not null,
      client_request_id text,
      is_unique boolean not null,
      tags text[] not null,
      max_runtime_s int,
      max_attempts int not null,
      retry_backoff_s int not null,
      run_at timestamptz,
      bytes int not null,
      created_at timestamptz not null
    )`);
    this.addSql(`create unique index jobs_client_request on jobs (addon_id, client_request_id)
      where client_request_id is not null`);
    this.addSql('create index jobs_addon on jobs (addon_id, job_id)');

    // Half of every page is left free for the next version of a row. Dead rows are removed by their number,
    // not by their share: the share says nothing about a queue.
    this.addSql(`create table live_jobs (
      job_id uuid primary key,
      lane_id int not null,
      seq bigint not null,
      priority smallint not null,
      cost_units int not null,
      bytes int not null,
      state smallint not null,
      check_at timestamptz,
      attempts int not null,
      attempts_limit int not null,
      claims_lost smallint not null,
      claimed_by text,
      claim_expires_at timestamptz,
      claim_request_id text,
      lease_id uuid,
      started_at timestamptz,
      cancel_requested boolean not null,
      progress double precision,
      note text,
      updated_at timestamptz not null
    ) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000)`);
    this.addSql(`create index live_jobs_queue on live_jobs (lane_id, priority, seq)
      where state = 0 and check_at is null`);
    this.addSql('create index live_jobs_due on live_jobs (check_at) where check_at is not null');
    this.addSql(`create index live_jobs_claim_request on live_jobs (claim_request_id)
      where claim_request_id is not null`);

    this.addSql(`create table job_outcomes (
      job_id uuid primary key,
      state smallint not null,
      attempts int not null,
      claimed_by text,
      lease_id uuid,
      cancel_requested boolean not null,
      progress double precision,
      note text,
      started_at timestamptz,
      finished_at timestamptz not null,
      error_text text,
      error_detail jsonb,
      result jsonb,
      metrics jsonb
    )`);
    // Most jobs are DONE, and the primary key finds them. Only the others need an index.
    this.addSql('create index job_outcomes_unhappy on job_outcomes (state, job_id) where state <> 6');

    this.addSql(`create table job_events (
      event_id bigserial not null,
      at timestamptz not null,
      job_id uuid not null,
      lease_id uuid,
      type smallint not null,
      from_state smallint,
      to_state smallint,
      actor text not null,
      data jsonb,
      primary key (job_id, event_id)
    )`);
  }

  override down(): void {
    this.addSql('drop table job_events, job_outcomes, live_jobs, jobs, lanes');
    this.addSql('drop sequence job_seq');
  }
}

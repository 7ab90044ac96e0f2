import { Migration } from '@mikro-orm/migrations';

/** Leases in the hot rows, their history, their capacity, and the table that live servers keep fresh. */
export class Leases extends Migration {
  override up(): void {
    this.addSql('create sequence lease_fence');

    // The lease is part of the job's hot row. A heartbeat writes no column of an index or of its condition.
    this.addSql(`alter table live_jobs
      add column lease_token uuid,
      add column fence bigint,
      add column lease_ttl_s int,
      add column lease_grace_s int not null default 0,
      add column last_heartbeat_at timestamptz,
      add column expires_at timestamptz,
      add column lease_ends_at timestamptz`);
    this.addSql('alter table live_jobs rename column claim_request_id to request_id');
    this.addSql('alter index live_jobs_claim_request rename to live_jobs_request');
    this.addSql('create unique index live_jobs_lease on live_jobs (lease_id) where lease_id is not null');
    this.addSql('create index live_jobs_holders on live_jobs (state, claimed_by) where state <> 0');

    this.addSql('alter table lanes add column is_unique boolean not null default false');

    this.addSql(`create table leases (
      lease_id uuid primary key,
      job_id uuid not null,
      attempt int not null,
      worker_id text not null,
      cost_units int not null,
      ttl_s int not null,
      fence bigint not null,
      lease_token uuid not null,
      state smallint not null,
      granted_at timestamptz not null,
      last_heartbeat_at timestamptz not null,
      expires_at timestamptz not null,
      ended_at timestamptz not null,
      release_status smallint,
      requeued boolean not null,
      error_text text,
      error_detail jsonb
    )`);
    this.addSql('create index leases_job on leases (job_id, lease_id)');
    this.addSql('create index leases_worker on leases (worker_id, lease_id)');
    // Most leases are released; only the others need an index to be found.
    this.addSql('create index leases_unreleased on leases (state, lease_id) where state <> 2');

    this.addSql(`create table capacity (
      capacity_id smallint primary key,
      total int,
      busy_rating smallint not null,
      used bigint not null
    )`);
    this.addSql('insert into capacity (capacity_id, busy_rating, used) values (1, 0, 0)');

    this.addSql(`create table pulse (
      pulse_id smallint primary key,
      alive_at timestamptz not null
    )`);
    this.addSql('insert into pulse (pulse_id, alive_at) values (1, clock_timestamp())');
    this.addSql(`create table outages (
      outage_id bigserial primary key,
      began_at timestamptz not null,
      ended_at timestamptz not null,
      next_lease_id uuid,
      leases_extended int not null
    )`);
    this.addSql('create index outages_open on outages (outage_id) where next_lease_id is not null');
  }

  override down(): void {
    this.addSql('drop table outages, pulse, capacity, leases');
    this.addSql('alter table lanes drop column is_unique');
    this.addSql('drop index live_jobs_holders, live_jobs_lease');
    this.addSql('alter index live_jobs_request rename to live_jobs_claim_request');
    this.addSql('alter table live_jobs rename column request_id to claim_request_id');
    this.addSql(`alter table live_jobs drop column lease_token, drop column fence, drop column lease_ttl_s,
      drop column lease_grace_s,      drop column last_heartbeat_at, drop column expires_at, drop column lease_ends_at`);
    this.addSql('drop sequence lease_fence');
  }
}

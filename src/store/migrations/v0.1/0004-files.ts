import { Migration } from '@mikro-orm/migrations';

/** File leases: owners, the files they hold, who waits for them, and what happened. */
export class Files extends Migration {
  override up(): void {
    // A heartbeat writes no indexed column: only the reaper moves `check_at`.
    this.addSql(`create table file_owners (
      owner_id text primary key,
      agent text,
      host text,
      pid int,
      branch text,
      state smallint not null,
      born_at timestamptz not null,
      last_heartbeat_at timestamptz not null,
      last_activity_at timestamptz not null,
      expires_at timestamptz not null,
      stopped_at timestamptz,
      idle_at timestamptz,
      ended_at timestamptz,
      has_losses boolean not null,
      check_at timestamptz
    ) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0)`);
    this.addSql('create index file_owners_due on file_owners (check_at) where check_at is not null');

    // A row for every file that was ever requested: a transaction must be able to lock a free file.
    this.addSql(`create table file_leases (
      file_id uuid primary key,
      repository text not null,
      path text not null,
      state smallint,
      owner_id text,
      acquired_at timestamptz,
      fence bigint,
      ended_at timestamptz,
      end_reason text
    ) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0)`);
    this.addSql('create index file_leases_owner on file_leases (owner_id, fence) where state = 0');
    this.addSql('create index file_leases_repository on file_leases (repository, fence) where state = 0');
    this.addSql('create index file_leases_held on file_leases (fence) where state = 0');

    this.addSql(`create table file_contentions (
      contention_id uuid not null,
      file_id uuid not null,
      owner_id text not null,
      repository text not null,
      path text not null,
      state smallint not null,
      denied_at timestamptz not null,
      retry_at timestamptz not null,
      retried_at timestamptz,
      halted_at timestamptz,
      closed_at timestamptz,
      blocker_id text not null,
      blocker_acquired_at timestamptz not null,
      blocker_now_id text,
      blocker_now_acquired_at timestamptz,
      check_at timestamptz,
      primary key (contention_id, file_id)
    ) with (fillfactor = 70)`);
    // An owner has one contention for a file at the most.
    this.addSql(`create unique index file_contentions_open on file_contentions (owner_id, file_id)
      where closed_at is null`);
    // Not with the same condition: after an ANALYZE of an empty table it would seem as good for finding one.
    this.addSql('create index file_contentions_listed on file_contentions (contention_id) where state < 2');
    this.addSql(
      'create index file_contentions_due on file_contentions (check_at) where check_at is not null',
    );

    this.addSql(`create table file_losses (
      owner_id text not null,
      file_id uuid not null,
      repository text not null,
      path text not null,
      fence bigint not null,
      lost_at timestamptz not null,
      reason text not null,
      primary key (owner_id, file_id)
    )`);

    // Ordered by the transactions that wrote them, so that a reader knows which rows may still appear before
    // those that it has read.
    this.addSql(`create table file_events (
      txid bigint not null,
      event_id bigserial not null,
      at timestamptz not null,
      type smallint not null,
      owner_id text not null,
      repository text,
      path text,
      fence bigint,
      contention_id uuid,
      actor text not null,
      data jsonb,
      primary key (txid, event_id)
    )`);

    this.addSql('alter table outages add column owners_extended int not null default 0');
  }

  override down(): void {
    this.addSql('alter table outages drop column owners_extended');
    this.addSql('drop table file_events, file_losses, file_contentions, file_leases, file_owners');
  }
}

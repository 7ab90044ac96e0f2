import { Migration } from '@mikro-orm/migrations';

/**
 * Adds keys, their common revision, and the audit events. Servers read the revision often, and read all keys
 * again only if it has changed.
 */
export class Access extends Migration {
  override up(): void {
    this.addSql(`create table api_keys (
      key_id text primary key,
      lineage uuid not null,
      name text not null,
      roles text[] not null,
      scopes jsonb not null,
      worker_ids text[] not null,
      sees_payloads boolean not null,
      secret_hash text not null,
      previous_hash text,
      previous_until timestamptz,
      note text,
      created_at timestamptz not null,
      created_by text not null,
      expires_at timestamptz,
      revoked_at timestamptz,
      revoked_by text,
      last_used_at timestamptz,
      last_used_from text
    )`);
    this.addSql('create unique index api_keys_name on api_keys (name) where revoked_at is null');
    this.addSql(`create table auth_state (
      auth_state_id smallint primary key,
      revision bigint not null
    )`);
    this.addSql('insert into auth_state (auth_state_id, revision) values (1, 1)');
    this.addSql(`create table audit_events (
      audit_id bigserial primary key,
      at timestamptz not null,
      principal_kind text not null,
      principal_id text not null,
      principal_name text not null,
      requested_by text,
      peer text not null,
      action text not null,
      target text,
      outcome text not null,
      detail text,
      trace_id text
    )`);
    this.addSql('create index audit_events_at on audit_events (at)');
  }

  override down(): void {
    this.addSql('drop table audit_events');
    this.addSql('drop table auth_state');
    this.addSql('drop table api_keys');
  }
}

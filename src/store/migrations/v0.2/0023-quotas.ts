import { Migration } from '@mikro-orm/migrations';

/** Adds quotas of tenants, and limits of single keys. */
export class Quotas extends Migration {
  override up(): void {
    this.addSql(`create table tenant_quotas (
      addon_id text primary key,
      max_units bigint,
      max_queued bigint,
      max_payload_bytes integer,
      updated_at timestamptz not null,
      updated_by text not null
    )`);
    this.addSql('alter table api_keys add column limits jsonb');
  }

  override down(): void {
    this.addSql('alter table api_keys drop column limits');
    this.addSql('drop table tenant_quotas');
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * Adds sub-agents, which borrow their parents' files, and instructions kept for an owner that is not alive.
 * Adding columns without a default rewrites no row.
 */
export class FileLending extends Migration {
  override up(): void {
    this.addSql('alter table file_owners add column parent_owner_id text');
    this.addSql('alter table file_leases add column lenders text[], add column lent_at timestamptz');
    this.addSql(`alter table file_contentions
      add column kept_instruction smallint,
      add column instructed_at timestamptz,
      add column instructed_by text,
      add column instruction_reason text`);
  }

  override down(): void {
    this.addSql(`alter table file_contentions drop column kept_instruction, drop column instructed_at,
      drop column instructed_by, drop column instruction_reason`);
    this.addSql('alter table file_leases drop column lenders, drop column lent_at');
    this.addSql('alter table file_owners drop column parent_owner_id');
  }
}

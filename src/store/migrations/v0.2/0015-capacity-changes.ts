import { Migration } from '@mikro-orm/migrations';

/** Adds the changes of the capacity with their actors. The pruner finds old changes by the index on `at`. */
export class CapacityChanges extends Migration {
  override up(): void {
    this.addSql(`create table capacity_changes (
      change_id bigserial primary key,
      at timestamptz not null,
      requested_by text not null,
      reason text,
      total_before int not null,
      total_after int not null,
      busy_rating_before smallint not null,
      busy_rating_after smallint not null
    )`);
    this.addSql('create index capacity_changes_at on capacity_changes (at)');
  }

  override down(): void {
    this.addSql('drop table capacity_changes');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** How many of the failures of a minute were retried, so that jobs are counted that are FAILED now, and not failures. */
export class FailedJobs extends Migration {
  override up(): void {
    this.addSql('alter table stat_tallies add column failed_retried bigint not null default 0');
    this.addSql('alter table stat_rollups add column failed_retried bigint not null default 0');
  }

  override down(): void {
    this.addSql('alter table stat_rollups drop column failed_retried');
    this.addSql('alter table stat_tallies drop column failed_retried');
  }
}

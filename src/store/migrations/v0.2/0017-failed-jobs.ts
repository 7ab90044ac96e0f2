import { Migration } from '@mikro-orm/migrations';

/**
 * Counts the retried failures of each minute, so that figures show jobs that are FAILED now instead of
 * failures.
 */
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

import { Migration } from '@mikro-orm/migrations';

/**
 * Adds the holder of claims, leases and owners of files: a number that stands for the credential that took
 * them. It is null without authentication. No index contains it, so heartbeats stay HOT updates.
 */
export class Holders extends Migration {
  override up(): void {
    this.addSql('alter table live_jobs add column holder int');
    this.addSql('alter table job_outcomes add column holder int');
    this.addSql('alter table leases add column holder int');
    this.addSql('alter table file_owners add column holder int');
  }

  override down(): void {
    this.addSql('alter table file_owners drop column holder');
    this.addSql('alter table leases drop column holder');
    this.addSql('alter table job_outcomes drop column holder');
    this.addSql('alter table live_jobs drop column holder');
  }
}

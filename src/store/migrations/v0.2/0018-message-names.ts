import { Migration } from '@mikro-orm/migrations';

/**
 * Adds the earlier ids of a message. Redis may lose a message between a claim and its answer; the server then
 * sends it again under another id. Adding columns without a default rewrites no row and leaves all views
 * alone.
 */
export class MessageNames extends Migration {
  override up(): void {
    this.addSql('alter table stream_messages add column earlier_ids text[]');
    this.addSql('alter table job_outcomes add column message_ids text[]');
    this.addSql('alter table leases add column message_ids text[]');
  }

  override down(): void {
    this.addSql('alter table stream_messages drop column earlier_ids');
    this.addSql('alter table job_outcomes drop column message_ids');
    this.addSql('alter table leases drop column message_ids');
  }
}

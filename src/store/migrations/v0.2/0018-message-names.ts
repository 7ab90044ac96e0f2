import { Migration } from '@mikro-orm/migrations';

/** Tables of ended leases, in the order in which running servers write to them. */
const histories = ['job_outcomes', 'leases'];

/**
 * Adds the earlier ids of a message. Redis may lose a message between a claim and its answer; the server then
 * sends it again under another id. Adding columns without a default rewrites no row and leaves all views
 * alone.
 */
export class MessageNames extends Migration {
  override up(): void {
    this.addSql('alter table stream_messages add column earlier_ids text[]');
    for (const table of histories) this.addSql(`alter table ${table} add column message_ids text[]`);
  }

  override down(): void {
    this.addSql('alter table stream_messages drop column earlier_ids');
    for (const table of histories) this.addSql(`alter table ${table} drop column message_ids`);
  }
}

import { Migration } from '@mikro-orm/migrations';

/** Tables of ended leases, in the order in which running servers write to them. */
const histories = ['job_outcomes', 'leases'];

/**
 * Names that a message has had. Redis may lose a message between a claim and its answer; the message is then sent again
 * under another name. Columns without a default write no row and leave all views where they are.
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

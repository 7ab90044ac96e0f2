import { Migration } from '@mikro-orm/migrations';

/** Where a lease is kept: while it is active, after its job went on, and where its job ended with it. */
const tables = ['live_jobs', 'job_outcomes', 'leases'];

/**
 * How often a lease was kept, and how long nothing was heard of its worker at the most. Columns without a default write no
 * row and leave all views where they are. They are null until the first heartbeat, and take no room until then; of leases
 * that were kept before, they stay null.
 *
 * Undoing it is refused, and then changes nothing, where others have made views that name the columns, as a `select *` does
 * from then on: their views are theirs to drop.
 */
export class Silences extends Migration {
  override up(): void {
    for (const table of tables)
      this.addSql(`alter table ${table}
        add column heartbeats int,
        add column longest_silence_ms int,
        add column longest_silence_since timestamptz`);
  }

  override down(): void {
    for (const table of tables)
      this.addSql(`alter table ${table}
        drop column heartbeats, drop column longest_silence_ms, drop column longest_silence_since`);
  }
}

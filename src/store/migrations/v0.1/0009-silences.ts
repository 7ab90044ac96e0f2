import { Migration } from '@mikro-orm/migrations';

/**
 * The number of a lease's heartbeats, and the longest time between two of them. Adding columns without a default
 * rewrites no row and leaves all views alone. They are null, and take no space, until the next heartbeat. A
 * lease is in one of three tables: while it is active, if its job ended with it, and if its job continued.
 *
 * Undoing it fails and changes nothing if users have built views that name the columns, as a `select *` does
 * from then on. The users have to drop these views.
 */
export class Silences extends Migration {
  override up(): void {
    this.addSql(`alter table live_jobs
        add column heartbeats int,
        add column longest_silence_ms int,
        add column longest_silence_since timestamptz`);
    this.addSql(`alter table job_outcomes
        add column heartbeats int,
        add column longest_silence_ms int,
        add column longest_silence_since timestamptz`);
    this.addSql(`alter table leases
        add column heartbeats int,
        add column longest_silence_ms int,
        add column longest_silence_since timestamptz`);
  }

  override down(): void {
    this.addSql(`alter table live_jobs
        drop column heartbeats, drop column longest_silence_ms, drop column longest_silence_since`);
    this.addSql(`alter table job_outcomes
        drop column heartbeats, drop column longest_silence_ms, drop column longest_silence_since`);
    this.addSql(`alter table leases
        drop column heartbeats, drop column longest_silence_ms, drop column longest_silence_since`);
  }
}

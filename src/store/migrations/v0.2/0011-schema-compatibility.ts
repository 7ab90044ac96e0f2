import { Migration } from '@mikro-orm/migrations';
import { contractViews } from '../views/contract-views.ts';

/**
 * Adds the table from which older servers read whether they may still write, and repairs databases that ran
 * an earlier, unreleased form of migration 0010.
 *
 * That form did not create `submissions_told`, without which no history can be read. Its boundary is computed
 * again: jobs up to it have an event of their submission (type 0) in the history, or were created before 0010
 * ran. `executed_at` is rounded to a second; the jobs of that second still have their event.
 */
export class SchemaCompatibility extends Migration {
  override up(): void {
    this.addSql(`create table schema_compatibility (
      migration text primary key,
      oldest_writer text not null,
      recorded_at timestamptz not null default clock_timestamp()
    )`);
    this.addSql(`create table if not exists submissions_told (
      told_id smallint primary key, after_seq bigint not null)`);
    this.addSql(`insert into submissions_told (told_id, after_seq)
      select 1, greatest(0,
        (select max(event_id) from job_events where type = 0),
        (select max(seq) from jobs where exists (
          select from job_events event where event.job_id = jobs.job_id and event.type = 0)),
        (select max(seq) from jobs where created_at < (
          select executed_at - interval '1 second' from leasehold_migrations where name = '0010-submissions')))
      where not exists (select from submissions_told where told_id = 1)`);
    for (const view of contractViews) this.addSql(view);
  }

  override down(): void {
    this.addSql('drop table schema_compatibility');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** Streams: their messages, and the jobs that they give up. */
export class Streams extends Migration {
  override up(): void {
    // In the order in which running servers write to these tables, so that no deadlock is possible.
    this.addSql('alter table leases add column dead_lettered boolean not null default false');
    this.addSql('create index lanes_stream on lanes (stream)');
    this.addSql(`create table stream_messages (
      job_id uuid primary key,
      stream text not null,
      attempt int not null,
      message_id text,
      written_at timestamptz not null
    ) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0)`);
    this.addSql(
      'create index stream_messages_unsent on stream_messages (written_at) where message_id is null',
    );

    // What this database is called by others than itself. Embedded databases begin as copies of one.
    this.addSql('create table identity (identity_id smallint primary key, database_id uuid not null)');
    this.addSql('insert into identity (identity_id, database_id) values (1, gen_random_uuid())');

    // Few jobs are dead letters, and those are looked for and counted by stream among all that have ended.
    this.addSql('alter table job_outcomes add column dead_stream text');
    this.addSql(
      'create index job_outcomes_dead on job_outcomes (dead_stream, job_id) where dead_stream is not null',
    );
  }

  override down(): void {
    this.addSql('drop table stream_messages, identity');
    this.addSql('alter table leases drop column dead_lettered');
    this.addSql('drop index job_outcomes_dead');
    this.addSql('alter table job_outcomes drop column dead_stream');
    this.addSql('drop index lanes_stream');
  }
}

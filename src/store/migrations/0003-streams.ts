import { Migration } from '@mikro-orm/migrations';

/** Streams: their messages, and the jobs that they give up. */
export class Streams extends Migration {
  override up(): void {
    this.addSql('create index lanes_stream on lanes (stream)');

    // Few jobs are dead letters, and those are looked for among all that have ended.
    this.addSql('alter table job_outcomes add column dead_lettered boolean not null default false');
    this.addSql('create index job_outcomes_dead on job_outcomes (job_id) where dead_lettered = true');
    this.addSql('alter table leases add column dead_lettered boolean not null default false');

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
  }

  override down(): void {
    this.addSql('drop table stream_messages');
    this.addSql('alter table leases drop column dead_lettered');
    this.addSql('drop index job_outcomes_dead');
    this.addSql('alter table job_outcomes drop column dead_lettered');
    this.addSql('drop index lanes_stream');
  }
}

import { Migration } from '@mikro-orm/migrations';
import { submissions } from '../../sql/events/record.ts';
import { contractViews, viewsBeforeSubmissions } from '../views/contract-views.ts';

/** The days of history that can be written to; see `store/sql/events/partitions.ts`. */
const parts = `
  select part.relname like 'job\\_events\\_to\\_%' as is_first, to_date(right(part.relname, 8), 'YYYYMMDD') as day
  from pg_inherits parent join pg_class part on part.oid = parent.inhrelid
  where parent.inhparent = 'job_events'::regclass and not parent.inhdetachpending`;

/**
 * A submission has no row in the history any more: it is told from the job, whose place in line is a number of the history.
 * So both are counted as one from here on, beyond all that were given out before. What was written stays as it is.
 */
export class Submissions extends Migration {
  override up(): void {
    // Whoever is about to take a number of it comes before this, or finds it gone.
    this.addSql('alter sequence job_seq owned by none');
    this.addSql(`select setval('job_events_event_id_seq',
      greatest((select last_value from job_seq), (select last_value from job_events_event_id_seq)))`);
    this.addSql('drop sequence job_seq');
    this.addSql('create table submissions_told (told_id smallint primary key, after_seq bigint not null)');
    this.addSql(`insert into submissions_told (told_id, after_seq)
      select 1, last_value from job_events_event_id_seq`);
    for (const view of contractViews) this.addSql(view);
  }

  override down(): void {
    // As many rows as there are jobs.
    this.addSql("set local statement_timeout = '0'");
    this.addSql('create sequence job_seq');
    this.addSql("select setval('job_seq', (select last_value from job_events_event_id_seq))");
    // Of the days that can be written to: older ones are gone.
    this.addSql(`with part as materialized (${parts}), submitted as (
        select *, (at at time zone 'UTC')::date as day from ${submissions} submission
      )
      insert into job_events (event_id, at, job_id, type, to_state, actor, data)
      select event_id, at, job_id, type, to_state, actor, data from submitted
      where day in (select day from part where not is_first) or day < (select max(day) from part where is_first)`);
    for (const view of viewsBeforeSubmissions) this.addSql(view);
    this.addSql('drop table submissions_told');
  }
}

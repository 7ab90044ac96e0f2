import { Migration } from '@mikro-orm/migrations';
import { submissions } from '../statements/event-record.ts';
import { contractViews } from './views.ts';

/**
 * A submission has no row in the history any more: it is told from the job, whose place in line is a number of the history.
 * So both are counted as one from here on, beyond all that were given out before. What was written stays as it is.
 */
export class Submissions extends Migration {
  override up(): void {
    this.addSql(`select setval('job_events_event_id_seq',
      greatest((select last_value from job_seq), (select last_value from job_events_event_id_seq)))`);
    this.addSql('drop sequence job_seq');
    for (const view of contractViews) this.addSql(view);
  }

  override down(): void {
    this.addSql('create sequence job_seq');
    this.addSql("select setval('job_seq', (select last_value from job_events_event_id_seq))");
    // Of the days that there is a part for: older ones may be gone.
    this.addSql(`insert into job_events (event_id, at, job_id, type, to_state, actor, data)
      select event_id, at, job_id, type, to_state, actor, data from ${submissions} submitted
      where at >= (
        select case when bool_or(part.relname like 'job\\_events\\_to\\_%') then '-infinity'
          else min(to_date(right(part.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC' end
        from pg_inherits parent join pg_class part on part.oid = parent.inhrelid
        where parent.inhparent = 'job_events'::regclass
      )`);
  }
}

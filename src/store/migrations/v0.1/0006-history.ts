import { Migration } from '@mikro-orm/migrations';

/**
 * The history in days that can be dropped, and the progress of deletions. Both directions put another table in
 * the place of `job_events`. Views depend on a table, not on its name, so they are created again.
 */
export class History extends Migration {
  override up(): void {
    this.addSql(`create table prune_walks (
      walk text primary key,
      mark text,
      rests_until timestamptz not null
    )`);
    // These tables lose as many rows in a day as they gain: dead rows are removed before they are many.
    this.addSql(`alter table jobs
        set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000)`);
    this.addSql(`alter table job_outcomes
        set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000)`);
    this.addSql(`alter table leases
        set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000)`);
    this.addSql(`alter table file_events
        set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000)`);

    // The present table becomes the first partition. Its rows are read and none is moved. Running servers wait
    // at this table and hold no lock that this transaction needs: it is the only one that is locked against
    // them, and the last. Each partition has its own index and the whole has none, so no index is built.
    this.addSql("set local statement_timeout = '0'");
    this.addSql('lock table job_events in access exclusive mode');
    this.addSql(
      `do $$
  declare
    views text[] := array(
      select format('create or replace view %s as %s', view::regclass, pg_get_viewdef(view))
      from (
        select distinct rule.ev_class as view from pg_depend depend join pg_rewrite rule on rule.oid = depend.objid
        where depend.classid = 'pg_rewrite'::regclass and depend.refclassid = 'pg_class'::regclass
          and depend.refobjid = 'job_events'::regclass
        order by view
      ) dependent
    );
    view text;
    first_day date := greatest((clock_timestamp() at time zone 'UTC')::date,
          (select (max(at) at time zone 'UTC')::date from job_events)) + 1;
        first_part text := 'job_events_to_' || to_char(first_day, 'YYYYMMDD');
        part text;
  begin
    execute format('alter table job_events rename to %I', first_part);
        execute format('alter index job_events_pkey rename to %I', first_part || '_pkey');
        execute format('create table job_events (like %I including defaults) partition by range (at)', first_part);
        execute 'alter sequence job_events_event_id_seq owned by job_events.event_id';
        execute format('alter table job_events attach partition %I for values from (minvalue) to (%L)', first_part,
          first_day || ' 00:00:00+00');
        -- Servers of an earlier version, which make none, may go on for as long.
        for day in 0..7 loop
          part := 'job_events_d' || to_char(first_day + day, 'YYYYMMDD');
          execute format('create table %I (like job_events including defaults, primary key (job_id, event_id))', part);
          execute format('alter table job_events attach partition %I for values from (%L) to (%L)', part,
            (first_day + day) || ' 00:00:00+00', (first_day + day + 1) || ' 00:00:00+00');
        end loop;
    foreach view in array views loop
      execute view;
    end loop;
  end
$$`,
    );
  }

  override down(): void {
    this.addSql('lock table job_events in access exclusive mode');
    this.addSql(
      `do $$
  declare
    views text[] := array(
      select format('create or replace view %s as %s', view::regclass, pg_get_viewdef(view))
      from (
        select distinct rule.ev_class as view from pg_depend depend join pg_rewrite rule on rule.oid = depend.objid
        where depend.classid = 'pg_rewrite'::regclass and depend.refclassid = 'pg_class'::regclass
          and depend.refobjid = 'job_events'::regclass
        order by view
      ) dependent
    );
    view text;
\x20\x20\x20\x20
  begin
    alter table job_events rename to job_events_parts;
        create table job_events (like job_events_parts including defaults);
        insert into job_events select * from job_events_parts;
        alter sequence job_events_event_id_seq owned by job_events.event_id;
        alter table job_events add primary key (job_id, event_id);
    foreach view in array views loop
      execute view;
    end loop;
  end
$$`,
    );
    this.addSql('drop table job_events_parts');
    this.addSql('alter table jobs reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)');
    this.addSql(
      'alter table job_outcomes reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)',
    );
    this.addSql('alter table leases reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)');
    this.addSql(
      'alter table file_events reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)',
    );
    this.addSql('drop table prune_walks');
  }
}

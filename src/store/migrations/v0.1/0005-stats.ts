import { Migration } from '@mikro-orm/migrations';

/** Tallies of what happens, and what they add up to. */
export class Stats extends Migration {
  override up(): void {
    // When a job could first be leased for its next attempt. Null for jobs that are older than the column.
    this.addSql('alter table live_jobs add column ready_at timestamptz');

    // Ordered by the transactions that wrote them, so that the aggregator begins where the dead rows end.
    this.addSql(`create table stat_tallies (
      txid bigint not null,
      tally_id bigserial not null,
      at timestamptz not null,
      lane_id int not null,
      queued bigint not null default 0, claimed bigint not null default 0, reserved bigint not null default 0, running bigint not null default 0, used bigint not null default 0, submitted bigint not null default 0, done bigint not null default 0, failed bigint not null default 0, canceled bigint not null default 0, timeouts bigint not null default 0, granted bigint not null default 0, expired bigint not null default 0,
      waits smallint[],
      runs smallint[],
      primary key (txid, tally_id)
    ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)`);

    this.addSql(`create table stat_totals (
      addon_id text primary key,
      queued bigint not null default 0, claimed bigint not null default 0, reserved bigint not null default 0, running bigint not null default 0, used bigint not null default 0
    ) with (fillfactor = 50)`);
    this.addSql(`create table stat_rollups (
      addon_id text not null,
      level smallint not null,
      bucket timestamptz not null,
      usable bigint,
      queued bigint not null default 0, claimed bigint not null default 0, reserved bigint not null default 0, running bigint not null default 0, used bigint not null default 0, submitted bigint not null default 0, done bigint not null default 0, failed bigint not null default 0, canceled bigint not null default 0, timeouts bigint not null default 0, granted bigint not null default 0, expired bigint not null default 0,
      wait_slots smallint[],
      wait_counts bigint[],
      run_slots smallint[],
      run_counts bigint[],
      primary key (addon_id, level, bucket)
    ) with (fillfactor = 50)`);
    this.addSql(`create table stat_fold (
      fold_id smallint primary key,
      folded_before bigint not null,
      audited_at timestamptz
    )`);
    this.addSql('insert into stat_fold (fold_id, folded_before) values (1, 0)');

    // What there is already is counted once; from here on every transaction says what it changes.
    this.addSql(`insert into stat_totals (addon_id, queued, claimed, reserved, running, used)
    select coalesce(lanes.addon_id, ''), coalesce(sum(counted.queued), 0), coalesce(sum(counted.claimed), 0), coalesce(sum(counted.reserved), 0), coalesce(sum(counted.running), 0), coalesce(sum(counted.used), 0)
    from (
      select lane_id, count(*) filter (where state = 0) as queued,
        count(*) filter (where state in (1, 2, 3)) as claimed,
        sum(cost_units) filter (where state in (1, 2, 3)) as reserved,
        count(*) filter (where state in (4, 5)) as running,
        sum(cost_units) filter (where state in (4, 5)) as used
      from live_jobs group by lane_id
    ) counted join lanes on lanes.lane_id = counted.lane_id
    group by grouping sets ((lanes.addon_id), ())`);
  }

  override down(): void {
    this.addSql('drop table stat_fold, stat_rollups, stat_totals, stat_tallies');
    this.addSql('alter table live_jobs drop column ready_at');
  }
}

import { Migration } from '@mikro-orm/migrations';
import { claimedStates, leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';

const queued = stateNumber('QUEUED');
const claimed = claimedStates.map(stateNumber).join(', ');
const leased = leasedStates.map(stateNumber).join(', ');

const gauges = ['queued', 'claimed', 'reserved', 'running', 'used'];
const counters = ['submitted', 'done', 'failed', 'canceled', 'timeouts', 'granted', 'expired'];
const sums = (names: readonly string[]) =>
  names.map((name) => `${name} bigint not null default 0`).join(', ');

/** Tallies of what happens, and what they add up to. */
export class Stats extends Migration {
  override up(): void {
    // When a job could first be leased for its next attempt. Null for jobs that are older than the column.
    this.addSql('alter table live_jobs add column ready_at timestamptz');

    // Ordered by the transactions that wrote them, so that whoever adds them up begins where the dead rows end.
    this.addSql(`create table stat_tallies (
      txid bigint not null,
      tally_id bigserial not null,
      at timestamptz not null,
      lane_id int not null,
      ${sums([...gauges, ...counters])},
      waits smallint[],
      runs smallint[],
      primary key (txid, tally_id)
    ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)`);

    this.addSql(`create table stat_totals (
      addon_id text primary key,
      ${sums(gauges)}
    ) with (fillfactor = 50)`);
    this.addSql(`create table stat_rollups (
      addon_id text not null,
      level smallint not null,
      bucket timestamptz not null,
      usable bigint,
      ${sums([...gauges, ...counters])},
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
    select coalesce(lanes.addon_id, ''), ${['queued', 'claimed', 'reserved', 'running', 'used'].map((name) => `coalesce(sum(counted.${name}), 0)`).join(', ')}
    from (
      select lane_id, count(*) filter (where state = ${queued}) as queued,
        count(*) filter (where state in (${claimed})) as claimed,
        sum(cost_units) filter (where state in (${claimed})) as reserved,
        count(*) filter (where state in (${leased})) as running,
        sum(cost_units) filter (where state in (${leased})) as used
      from live_jobs group by lane_id
    ) counted join lanes on lanes.lane_id = counted.lane_id
    group by grouping sets ((lanes.addon_id), ())`);
  }

  override down(): void {
    this.addSql('drop table stat_fold, stat_rollups, stat_totals, stat_tallies');
    this.addSql('alter table live_jobs drop column ready_at');
  }
}

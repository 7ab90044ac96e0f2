import { Migration } from '@mikro-orm/migrations';

/**
 * Adds crowded lanes, whose jobs have keys in the order of the queue, and the streams without a lane. The keys
 * are the digests that `digestOf` in `store/sql/queue/crowds.ts` computes.
 */
export class Crowds extends Migration {
  override up(): void {
    this.addSql("set local statement_timeout = '0'");
    this.addSql(`alter table lanes
      add column crowd bigint,
      add column crowd_type bigint,
      add column crowd_addon bigint,
      add column crowd_both bigint`);
    this.addSql(`alter table live_jobs
      add column crowd bigint,
      add column crowd_type bigint,
      add column crowd_addon bigint,
      add column crowd_both bigint`);
    this.addSql(`create table requirement_paths (
      parent_id bigint not null,
      name_key bigint not null,
      path_id bigint not null,
      primary key (parent_id, name_key)
    )`);
    this.addSql(`create table idle_streams (
      stream text primary key,
      idle_since timestamptz not null
    )`);
    this.addSql('create index idle_streams_since on idle_streams (idle_since)');

    // Streams may have more lanes than are read one by one. Lanes with ready jobs come first among those that
    // are.
    this.addSql(`create temporary table crowded_lanes on commit drop as
      select lane_id, stream, addon_id, job_type, is_unique, requires[:8] as requires from (
        select lanes.*, row_number() over (partition by stream order by exists (
          select from live_jobs where live_jobs.lane_id = lanes.lane_id and state = 0 and check_at is null
        ) desc, lane_id) as n from lanes
      ) numbered where n > 50`);
    this.addSql(`create temporary table crowded_paths on commit drop as
      with recursive step (lane_id, requires, n, parent_id, name_key, path_id) as (
        select lane_id, requires, 0, null::bigint, null::bigint,
          ('x' || left(encode(sha256(convert_to(case when is_unique then 'unique:' else 'common:' end || stream, 'UTF8')), 'hex'), 16))::bit(64)::bigint
        from crowded_lanes
        union all
        select lane_id, requires, n + 1, path_id, ('x' || left(encode(sha256(convert_to('name:' || requires[n + 1], 'UTF8')), 'hex'), 16))::bit(64)::bigint,
          ('x' || left(encode(sha256(convert_to(path_id || ':' || requires[n + 1], 'UTF8')), 'hex'), 16))::bit(64)::bigint
        from step where n < cardinality(requires)
      )
      select * from step`);
    this.addSql(`insert into requirement_paths (path_id, parent_id, name_key)
      select distinct path_id, parent_id, name_key from crowded_paths where n > 0`);
    this.addSql(`update lanes set crowd = path_id, crowd_type = path_id # ('x' || left(encode(sha256(convert_to('type:' || crowded.job_type, 'UTF8')), 'hex'), 16))::bit(64)::bigint,
        crowd_addon = path_id # ('x' || left(encode(sha256(convert_to('addon:' || crowded.addon_id, 'UTF8')), 'hex'), 16))::bit(64)::bigint,
        crowd_both = path_id # ('x' || left(encode(sha256(convert_to('type:' || crowded.job_type, 'UTF8')), 'hex'), 16))::bit(64)::bigint # ('x' || left(encode(sha256(convert_to('addon:' || crowded.addon_id, 'UTF8')), 'hex'), 16))::bit(64)::bigint
      from crowded_lanes crowded join crowded_paths path
        on path.lane_id = crowded.lane_id and path.n = cardinality(crowded.requires)
      where lanes.lane_id = crowded.lane_id`);
    this.addSql(`update live_jobs set crowd = lanes.crowd, crowd_type = lanes.crowd_type,
        crowd_addon = lanes.crowd_addon, crowd_both = lanes.crowd_both
      from lanes where lanes.lane_id = live_jobs.lane_id and lanes.crowd is not null`);

    this.addSql(`alter table lanes add column own_stream text
      generated always as (case when crowd is null then stream end) stored`);
    this.addSql('create index lanes_own_stream on lanes (own_stream)');
    this.addSql(`create index live_jobs_crowd on live_jobs (crowd, priority, seq)
        where (state + (check_at is not null)::int) = 0 and crowd is not null`);
    this.addSql(`create index live_jobs_crowd_type on live_jobs (crowd_type, priority, seq)
        where (state + (check_at is not null)::int) = 0 and crowd_type is not null`);
    this.addSql(`create index live_jobs_crowd_addon on live_jobs (crowd_addon, priority, seq)
        where (state + (check_at is not null)::int) = 0 and crowd_addon is not null`);
    this.addSql(`create index live_jobs_crowd_both on live_jobs (crowd_both, priority, seq)
        where (state + (check_at is not null)::int) = 0 and crowd_both is not null`);
  }

  override down(): void {
    this.addSql(
      'alter table live_jobs drop column crowd, drop column crowd_type, drop column crowd_addon, drop column crowd_both',
    );
    this.addSql('alter table lanes drop column own_stream');
    this.addSql(
      'alter table lanes drop column crowd, drop column crowd_type, drop column crowd_addon, drop column crowd_both',
    );
    this.addSql('drop table requirement_paths, idle_streams');
  }
}

import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { StreamDepth } from '../../../domain/streams/stream-depth.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement, statement } from '../../connection/statement.ts';
import { uuidArray } from '../array-params.ts';

export const queued = stateNumber('QUEUED');

const streams = preparedStatement(['jobIds'], 'select stream from jobs where job_id = any (@jobIds::uuid[])');

/** The streams of these jobs, with null for a job without one; in no order. */
export async function streamsOf(sql: Sql, jobIds: readonly string[]): Promise<(string | null)[]> {
  if (jobIds.length === 0) return [];
  const rows = await streams.query<{ stream: string | null }>(sql, { jobIds: uuidArray(jobIds) });
  return rows.map(({ stream }) => stream);
}

/** The next name after another one, of streams that have a lane or had one. */
const nextName = (after: string): string => `least(
    (select lanes.stream from lanes where lanes.stream > ${after} order by lanes.stream limit 1),
    (select idle.stream from idle_streams idle where idle.stream > ${after} order by idle.stream limit 1))`;

// Names are found by a loose scan from one to the next: a stream may have a million lanes.
const named = `named (stream, n) as (
  select ${nextName('@after::text')}, 1
  union all
  select ${nextName('named.stream')}, n + 1 from named where named.stream is not null and n < @limit::int
), page as materialized (
  select stream from named where stream is not null
)`;

const one = `page as materialized (
  select @stream::text as stream
  where exists (select from lanes where lanes.stream = @stream)
    or exists (select from idle_streams idle where idle.stream = @stream)
)`;

// Each part has an index of exactly the rows that it counts. All delayed, claimed and leased jobs have a
// `check_at`, and are read once for a whole page.
const depths = <const Name extends string>(names: readonly Name[], page: string) =>
  statement(
    names,
    `
with recursive ${page}, not_ready as materialized (
  select lane.stream, count(*) filter (where live.state = ${queued})::int as delayed,
    count(*) filter (where live.state <> ${queued})::int as running
  from live_jobs live cross join ${lateralByKey('lanes', 'lane_id', 'live.lane_id')} lane
  where live.check_at is not null and lane.stream between (select min(stream) from page)
    and (select max(stream) from page)
  group by lane.stream
)
select page.stream, coalesce(not_ready.delayed, 0) as delayed, coalesce(not_ready.running, 0) as running,
  (select count(*)::int from lanes cross join lateral (
    select from live_jobs live where live.lane_id = lanes.lane_id and live.state = ${queued}
      and live.check_at is null
  ) ready where lanes.stream = page.stream) as queued,
  (select count(*)::int from job_outcomes where dead_stream = page.stream) as "deadLettered"
from page left join not_ready on not_ready.stream = page.stream
order by page.stream`,
  );

const depthsOfPage = depths(['after', 'limit'], named);
const depthsOfOne = depths(['stream'], one);

/**
 * Up to `limit` streams after `after`, by name: all with unfinished jobs, or with finished ones that are
 * kept.
 */
export const streamDepths = (
  sql: Sql,
  { after, limit }: { after: string; limit: number },
  signal?: AbortSignal,
): Promise<StreamDepth[]> => depthsOfPage.query<StreamDepth>(sql, { after, limit }, signal);

/** The stream of this name; nothing if there is none. */
export const streamDepth = (sql: Sql, stream: string, signal?: AbortSignal): Promise<StreamDepth[]> =>
  depthsOfOne.query<StreamDepth>(sql, { stream }, signal);

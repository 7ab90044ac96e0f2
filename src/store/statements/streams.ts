import { stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import { rowOf, type Sql } from '../sql.ts';
import { uuidArray } from './arrays.ts';

const streams = hot('select stream from jobs where job_id = any ($1::uuid[])');

/** The streams of these jobs, with nothing for a job without one; in no order. */
export async function streamsOf(sql: Sql, jobIds: readonly string[]): Promise<(string | null)[]> {
  if (jobIds.length === 0) return [];
  const rows = await sql.query<{ stream: string | null }>(streams, [uuidArray(jobIds)]);
  return rows.map(({ stream }) => stream);
}

const isReady = `state = ${stateNumber('QUEUED')} and check_at is null`;

// The lanes that have something in them are found by leaping through the queue's index from one to the next.
const ready = hot(`
with recursive present (lane_id) as (
  (select lane_id from live_jobs where ${isReady} order by lane_id limit 1)
  union all
  select (select live_jobs.lane_id from live_jobs
    where ${isReady} and live_jobs.lane_id > present.lane_id
    order by live_jobs.lane_id limit 1)
  from present where present.lane_id is not null
)
select distinct lanes.stream from present cross join ${rowOf('lanes', 'lane_id', 'present.lane_id')} lanes`);

/** The streams that have jobs in the queue; the empty one stands for none. */
export async function readyStreams(sql: Sql): Promise<string[]> {
  const rows = await sql.query<{ stream: string }>(ready, []);
  return rows.map(({ stream }) => stream);
}

/** A stream and how much is in it. */
export interface StreamDepth {
  stream: string;
  /** May be taken now. */
  queued: number;
  /** Wait for a backoff, a time to start, or more capacity. */
  delayed: number;
  /** Leased. */
  running: number;
  deadLettered: number;
}

// Each part has an index that holds nothing but what it counts.
const depths = `
with stream as materialized (
  select distinct stream from lanes where stream <> '' and ($1::text is null or stream = $1)
), queued as (
  select lanes.stream, count(*)::int as jobs from lanes
  join live_jobs live on live.lane_id = lanes.lane_id and live.state = ${stateNumber('QUEUED')} and live.check_at is null
  where lanes.stream in (select stream from stream)
  group by lanes.stream
), delayed as (
  select lanes.stream, count(*)::int as jobs from live_jobs live join lanes on lanes.lane_id = live.lane_id
  where live.check_at is not null and live.state = ${stateNumber('QUEUED')} and lanes.stream in (select stream from stream)
  group by lanes.stream
), running as (
  select lanes.stream, count(*)::int as jobs from live_jobs live join lanes on lanes.lane_id = live.lane_id
  where live.state <> ${stateNumber('QUEUED')} and lanes.stream in (select stream from stream)
  group by lanes.stream
), dead as (
  select stream.stream, (select count(*)::int from job_outcomes where dead_stream = stream.stream) as jobs from stream
)
select stream.stream, coalesce(queued.jobs, 0) as queued, coalesce(delayed.jobs, 0) as delayed,
  coalesce(running.jobs, 0) as running, coalesce(dead.jobs, 0) as "deadLettered"
from stream left join queued using (stream) left join delayed using (stream) left join running using (stream)
  left join dead using (stream)
order by stream.stream`;

/** All streams that ever had a job, by name, or the one that is named. */
export const streamDepths = (sql: Sql, stream: string | null, signal?: AbortSignal): Promise<StreamDepth[]> =>
  sql.query<StreamDepth>(depths, [stream], signal);

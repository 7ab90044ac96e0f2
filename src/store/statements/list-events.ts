import type { JobEvent, JobWithResult } from '../../domain/job.ts';
import type { Sql } from '../sql.ts';
import { type EventRecord, toEvent } from './job-record.ts';

const list = `
select event_id, at, job_id, lease_id, type, from_state, to_state, actor, data from job_events
where job_id = $1::uuid and event_id > $2::bigint and at >= to_timestamp($3::float8 / 1000.0)
  and at < coalesce(to_timestamp($4::float8 / 1000.0), 'infinity')
order by event_id limit $5`;

/** Clocks may have been set back while the job lived, and a day more costs a look. */
const marginMs = 86_400_000;

/**
 * A job's history after a given event, oldest first. It is looked for in the days alone in which the job lived: whatever
 * else there is of the history is not even opened.
 */
export async function listEvents(
  sql: Sql,
  { job, result }: JobWithResult,
  afterEventId: string,
  limit: number,
  signal?: AbortSignal,
): Promise<JobEvent[]> {
  const from = job.createdAtMs - marginMs;
  const until = result === null ? null : result.finishedAtMs + marginMs;
  const rows = await sql.query<EventRecord>(list, [job.jobId, afterEventId, from, until, limit], signal);
  return rows.map(toEvent);
}

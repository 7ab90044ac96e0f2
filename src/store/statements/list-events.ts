import type { JobEvent, JobWithResult } from '../../domain/job.ts';
import type { Sql } from '../sql.ts';
import { type EventRecord, eventColumns, historyOf, numbersAhead, toEvents } from './event-record.ts';

// A row tells of numbers beyond its own as well.
const isAfter = `event_id > $2::bigint - ${numbersAhead}`;
const rows = `and ${isAfter} and at >= to_timestamp($3::float8 / 1000.0)
  and at < coalesce(to_timestamp($4::float8 / 1000.0), 'infinity')
  order by event_id limit $5`;
const list = `
select ${eventColumns} from ${historyOf('$1::uuid', rows)} event where ${isAfter} order by event.event_id limit $5`;

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
  const params = [job.jobId, afterEventId, from, until, limit + numbersAhead];
  const rows = await sql.query<EventRecord>(list, params, signal);
  const after = BigInt(afterEventId);
  const events = rows.flatMap(toEvents).filter(({ eventId }) => BigInt(eventId) > after);
  return events.slice(0, limit);
}

import type { Envelope, SentMessage } from '../../domain/stream.ts';
import { hot } from '../prepared.ts';
import { rowOf, type Sql } from '../sql.ts';
import { uuidArray } from './arrays.ts';

/** The messages of streams that have to be sent and settled. Nothing here is run where no messages are kept. */

const add = hot(`
insert into stream_messages (job_id, stream, attempt, written_at)
select live.job_id, job.stream, live.attempts + 1, clock_timestamp()
from live_jobs live cross join ${rowOf('jobs', 'job_id', 'live.job_id')} job
where live.job_id = any ($1::uuid[]) and job.stream is not null
on conflict (job_id) do update set attempt = excluded.attempt, message_id = null, written_at = excluded.written_at
returning job_id as "jobId", stream, attempt`);

/** Writes the messages of jobs that this transaction has queued; jobs without a stream have none. */
export async function addMessages(sql: Sql, jobIds: readonly string[]): Promise<Envelope[]> {
  return jobIds.length === 0 ? [] : sql.query<Envelope>(add, [uuidArray(jobIds)]);
}

const settle = hot(`
delete from stream_messages where job_id = any ($1::uuid[])
returning stream, message_id as "messageId"`);

/** Removes the messages of attempts that this transaction ends, and answers with those that had been sent. */
export async function settleMessages(sql: Sql, jobIds: readonly string[]): Promise<SentMessage[]> {
  if (jobIds.length === 0) return [];
  const rows = await sql.query<{ stream: string; messageId: string | null }>(settle, [uuidArray(jobIds)]);
  return rows.flatMap(({ stream, messageId }) => (messageId === null ? [] : { stream, messageId }));
}

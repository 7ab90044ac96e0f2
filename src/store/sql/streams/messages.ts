import type { Envelope, SentMessage } from '../../../domain/streams/stream-message.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { uuidArray } from '../array-params.ts';

/**
 * The messages of streams that have to be sent and acknowledged. Nothing here runs if no messages are kept.
 */

const add = preparedStatement(
  ['jobIds'],
  `
insert into stream_messages (job_id, stream, attempt, written_at)
select live.job_id, job.stream, live.attempts + 1, clock_timestamp()
from live_jobs live cross join ${lateralByKey('jobs', 'job_id', 'live.job_id')} job
where live.job_id = any (@jobIds::uuid[]) and job.stream is not null
on conflict (job_id) do update set attempt = excluded.attempt, message_id = null,
  written_at = excluded.written_at,
  earlier_ids = null
returning job_id as "jobId", stream, attempt`,
);

/** Writes the messages of jobs that this transaction has queued; jobs without a stream have none. */
export async function addMessages(sql: Sql, jobIds: readonly string[]): Promise<Envelope[]> {
  return jobIds.length === 0 ? [] : add.query<Envelope>(sql, { jobIds: uuidArray(jobIds) });
}

/** All ids that a message had in Redis, as an expression on its row; empty if there is no row. */
export const messageNames = (message: string): string =>
  `array_remove(array_prepend(${message}.message_id, ${message}.earlier_ids), null)`;

const ackStatement = preparedStatement(
  ['jobIds'],
  `
delete from stream_messages message where job_id = any (@jobIds::uuid[])
returning job_id as "jobId", stream, message_id as "messageId", ${messageNames('message')} as "messageIds"`,
);

/** A message of an attempt that has ended. */
export interface SettledMessage {
  jobId: string;
  stream: string;
  messageId: string | null;
  /** All ids that it had. */
  messageIds: string[];
}

/** Removes the messages of attempts that this transaction ends. */
export async function ackMessages(sql: Sql, jobIds: readonly string[]): Promise<SettledMessage[]> {
  return jobIds.length === 0 ? [] : ackStatement.query<SettledMessage>(sql, { jobIds: uuidArray(jobIds) });
}

/** The messages that had been sent. */
export const sentAmong = (settled: readonly SettledMessage[]): SentMessage[] =>
  settled.flatMap(({ stream, messageId }) => (messageId === null ? [] : { stream, messageId }));

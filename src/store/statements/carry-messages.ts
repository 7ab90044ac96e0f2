import { leasedStates, stateNumber } from '../../domain/machine.ts';
import { type Envelope, enqueueIdOf, type SentMessage } from '../../domain/stream.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { numberArray, textArray, uuidArray } from './arrays.ts';

/**
 * What a transport does with the rows of messages. It waits for nobody's locks: a row that somebody has is passed over,
 * because whoever has it ends or begins an attempt just now, and comes first.
 */

/** A message that tells of an envelope. */
export interface CarriedMessage extends Envelope {
  messageId: string;
}

/** Where the message of an attempt lies by its row: `over` where there is none, `open` where somebody has the row. */
export type Recorded = { messageId: string } | 'over' | 'open';

// Only rows that nobody has recorded yet are written; who comes second reads what the first has written.
const record = hot(`
with sent as materialized (
  select * from unnest($1::uuid[], $2::int[], $3::text[]) with ordinality as sent (job_id, attempt, message_id, place)
), present as materialized (
  select job_id, attempt from stream_messages where job_id = any ($1::uuid[])
), locked as materialized (
  select job_id, attempt, message_id from stream_messages where job_id = any ($1::uuid[])
  order by job_id for update skip locked
), recorded as (
  update stream_messages message set message_id = sent.message_id
  from locked join sent using (job_id, attempt)
  where message.job_id = locked.job_id and locked.message_id is null
  returning message.job_id, message.message_id
)
select coalesce(recorded.message_id, locked.message_id) as "messageId",
  present.attempt is not distinct from sent.attempt and locked.job_id is null as open
from sent left join present on present.job_id = sent.job_id
  left join locked on locked.job_id = sent.job_id and locked.attempt = sent.attempt
  left join recorded on recorded.job_id = locked.job_id
order by sent.place`);

/** Records where messages lie, and answers in their order with where they do; the first to record is right. */
export async function recordMessages(sql: Sql, messages: readonly CarriedMessage[]): Promise<Recorded[]> {
  if (messages.length === 0) return [];
  const rows = await sql.query<{ messageId: string | null; open: boolean }>(record, [
    uuidArray(messages.map(({ jobId }) => jobId)),
    numberArray(messages.map(({ attempt }) => attempt)),
    textArray(messages.map(({ messageId }) => messageId)),
  ]);
  return rows.map(({ messageId, open }) => (messageId === null ? (open ? 'open' : 'over') : { messageId }));
}

const read = hot(`
select job_id as "jobId", stream, attempt, message_id as "messageId"
from stream_messages where job_id = any ($1::uuid[])`);

/** What is known of the messages of these jobs, by enqueue id. */
export async function readMessages(
  sql: Sql,
  jobIds: readonly string[],
): Promise<Map<string, { stream: string; messageId: string | null }>> {
  const rows = await sql.query<Envelope & { messageId: string | null }>(read, [uuidArray(jobIds)]);
  return new Map(rows.map((row) => [enqueueIdOf(row), row]));
}

// The time is moved on, so that no other server takes the same rows while this one sends them.
const takeUnsent = hot(`
with taken as materialized (
  select job_id from stream_messages
  where message_id is null and written_at < (select clock_timestamp() - $2::float8 * interval '1 ms')
  order by written_at limit $1 for update skip locked
)
update stream_messages message set written_at = clock_timestamp()
from taken where message.job_id = taken.job_id
returning message.job_id as "jobId", stream, attempt`);

/** Up to `limit` messages that should have been sent for so long; for as long again they are nobody else's. */
export const takeUnsentMessages = (sql: Sql, limit: number, unsentMs: number): Promise<Envelope[]> =>
  sql.query<Envelope>(takeUnsent, [limit, unsentMs]);

/** A place in the queues of all streams. */
export interface QueuePlace {
  laneId: number;
  priority: number;
  seq: string;
}

export const queueStart: QueuePlace = { laneId: -1, priority: -1, seq: '-1' };

// Rows are looked up by key, as arrays: joined, the planner may read all of a table to find a slice of it. A job is
// locked before it is given a message, so that nobody ends its attempt meanwhile.
const addMissing = hot(`
with slice as materialized (
  select head.* from lanes lane cross join lateral (
    select live_jobs.job_id, live_jobs.lane_id, live_jobs.priority, live_jobs.seq from live_jobs
    where live_jobs.lane_id = lane.lane_id and state = ${stateNumber('QUEUED')} and check_at is null
      and (live_jobs.priority, live_jobs.seq) > (
        case when lane.lane_id = $1::int then $2::smallint else -1::smallint end,
        case when lane.lane_id = $1::int then $3::bigint else -1::bigint end)
    order by live_jobs.priority, live_jobs.seq limit $4::int
  ) head
  where lane.stream <> '' and lane.lane_id >= $1::int
  order by lane.lane_id, head.priority, head.seq limit $4::int
), present as materialized (
  select job_id from stream_messages where job_id = any (array(select job_id from slice))
), locked as materialized (
  select job_id, lane_id, state, attempts from live_jobs
  where job_id = any (array(select job_id from slice except select job_id from present))
  order by job_id for update skip locked
), added as (
  insert into stream_messages (job_id, stream, attempt, written_at)
  select job_id, lanes.stream, attempts + 1, clock_timestamp()
  from locked join lanes on lanes.lane_id = locked.lane_id
  where state = ${stateNumber('QUEUED')}
  on conflict (job_id) do nothing
  returning job_id, stream, attempt
)
select slice.lane_id as "laneId", slice.priority, slice.seq::text as seq, added.job_id as "jobId", added.stream,
  added.attempt
from slice left join added on added.job_id = slice.job_id
order by slice.lane_id, slice.priority, slice.seq`);

/** A slice of a walk: what it has found, and from where to go on; nothing where the walk is at its end. */
export interface Slice<Place, Found> {
  next: Place | undefined;
  found: Found[];
}

/** Looks at the next jobs that wait in a stream, and writes the messages of those that have none. */
export async function addMissingMessages(
  sql: Sql,
  after: QueuePlace,
  limit: number,
): Promise<Slice<QueuePlace, Envelope>> {
  type Row = QueuePlace & (Envelope | { jobId: null });
  const rows = await sql.query<Row>(addMissing, [after.laneId, after.priority, after.seq, limit]);
  const found = rows.flatMap((row) =>
    row.jobId === null ? [] : { jobId: row.jobId, stream: row.stream, attempt: row.attempt },
  );
  return { next: rows.length < limit ? undefined : rows.at(-1), found };
}

export const nowhere = '00000000-0000-0000-0000-000000000000';

const lookAt = hot(`
with slice as materialized (
  select * from stream_messages where job_id > $1::uuid order by job_id limit $2::int
), live as materialized (
  select job_id, state, attempts from live_jobs where job_id = any (array(select job_id from slice))
)
select slice.job_id as "jobId", slice.stream, slice.attempt, slice.message_id as "messageId",
  coalesce(live.state = ${stateNumber('QUEUED')}, false) as queued,
  live.job_id is null or slice.attempt <> live.attempts
    + case when live.state in (${leasedStates.map(stateNumber).join(', ')}) then 0 else 1 end as stale
from slice left join live on live.job_id = slice.job_id
order by slice.job_id`);

/** A message's row, and what the job says to it. */
export interface MessageRow extends Envelope {
  messageId: string | null;
  queued: boolean;
  /** Its attempt is over, and nobody has removed it: the job was changed by a server that kept no messages. */
  stale: boolean;
}

/** The next rows of messages, in the order of their jobs' ids. */
export async function lookAtMessages(
  sql: Sql,
  after: string,
  limit: number,
): Promise<Slice<string, MessageRow>> {
  const found = await sql.query<MessageRow>(lookAt, [after, limit]);
  return { next: found.length < limit ? undefined : found.at(-1)?.jobId, found };
}

/** The rows among these that are still as they were seen, locked. */
const unchanged = `
seen as materialized (
  select * from unnest($1::uuid[], $2::int[], $3::text[]) as seen (job_id, attempt, message_id)
), locked as materialized (
  select job_id, attempt, message_id from stream_messages where job_id = any ($1::uuid[])
  order by job_id for update skip locked
), same as materialized (
  select locked.job_id from locked join seen on seen.job_id = locked.job_id and seen.attempt = locked.attempt
    and seen.message_id is not distinct from locked.message_id
)`;

const seenParams = (rows: readonly MessageRow[]): unknown[] => [
  uuidArray(rows.map(({ jobId }) => jobId)),
  numberArray(rows.map(({ attempt }) => attempt)),
  textArray(rows.map(({ messageId }) => messageId)),
];

const removeStale = `
with ${unchanged}
delete from stream_messages message using same where message.job_id = same.job_id
returning message.stream, message.message_id as "messageId"`;

/** Removes the rows that are stale, and answers with the messages that had been sent. */
export async function removeStaleMessages(sql: Sql, rows: readonly MessageRow[]): Promise<SentMessage[]> {
  if (rows.length === 0) return [];
  type Row = { stream: string; messageId: string | null };
  const removed = await sql.query<Row>(removeStale, seenParams(rows));
  return removed.flatMap(({ stream, messageId }) => (messageId === null ? [] : { stream, messageId }));
}

const forgetLost = `
with ${unchanged}
update stream_messages message set message_id = null, written_at = clock_timestamp()
from same where message.job_id = same.job_id
returning message.job_id as "jobId", message.stream, message.attempt`;

/** Forgets where messages lie that are not there any more, and answers with those that have to be sent again. */
export async function forgetLostMessages(sql: Sql, rows: readonly MessageRow[]): Promise<Envelope[]> {
  return rows.length === 0 ? [] : sql.query<Envelope>(forgetLost, seenParams(rows));
}

/** The streams that jobs were ever submitted to, up to `limit`. */
export async function listStreams(sql: Sql, limit: number): Promise<string[]> {
  const rows = await sql.query<{ stream: string }>(distinctStreams, [limit]);
  return rows.map(({ stream }) => stream);
}

const distinctStreams = hot(
  "select distinct stream from lanes where stream <> '' order by stream limit $1::int",
);

/** A name for this database that no other one has, for keys that several databases might otherwise share. */
export async function databaseName(sql: Sql): Promise<string> {
  const [row] = await sql.query<{ name: string }>(
    `select system_identifier || '-' || (select oid from pg_database where datname = current_database()) as name
    from pg_control_system()`,
    [],
  );
  if (!row) throw new Error('the database did not tell its name');
  return row.name;
}

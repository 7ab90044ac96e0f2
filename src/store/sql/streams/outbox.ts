import { sql as raw } from 'kysely';
import { leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type Envelope, enqueueIdOf, type SentMessage } from '../../../domain/streams/stream-message.ts';
import { type EntitySql, keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement, statement } from '../../connection/statement.ts';
import { select } from '../../schema/tables.ts';
import { numberArray, textArray, uuidArray } from '../array-params.ts';
import { messageNames } from './messages.ts';

/**
 * The outbox: a transport's statements on the rows of messages. They wait for no lock: a locked row is
 * skipped, because its transaction is beginning or ending an attempt, and has precedence.
 */

/** A message that was sent for an envelope. */
export interface CarriedMessage extends Envelope {
  messageId: string;
}

/**
 * The recorded id of an attempt's message: `ended` if there is no row, `locked` if another transaction has
 * locked it.
 */
export type Recorded = { messageId: string } | 'ended' | 'locked';

// Only rows without an id are written; a later transaction reads the id that the first has written. Parts of
// a statement are never joined with each other: the planner takes them for small and would compare every row
// with every other.
const record = preparedStatement(
  ['jobIds', 'attempts', 'messageIds'],
  `
with sent as materialized (
  select * from unnest(@jobIds::uuid[], @attempts::int[], @messageIds::text[])
    as sent (job_id, attempt, message_id)
), locked as materialized (
  select message.job_id, message.attempt, message.message_id, sent.message_id as sent_id
  from (select * from sent order by job_id) sent
  join ${lateralByKey('stream_messages', 'job_id', 'sent.job_id', 'for update skip locked')} message
    on message.attempt = sent.attempt
), recorded as (
  update stream_messages message set message_id = locked.sent_id
  from locked where ${keyEquals('message.job_id', 'locked.job_id')} and locked.message_id is null
  returning message.job_id, message.attempt, message.message_id
)
select job_id as "jobId", attempt, message_id as "messageId" from recorded
union all
select job_id, attempt, message_id from locked where message_id is not null`,
);

/** Records the ids of messages, and returns the valid ids in the same order; the first recorded id wins. */
export async function recordMessages(sql: Sql, messages: readonly CarriedMessage[]): Promise<Recorded[]> {
  if (messages.length === 0) return [];
  const rows = await record.query<Omit<CarriedMessage, 'stream'>>(sql, {
    jobIds: uuidArray(messages.map(({ jobId }) => jobId)),
    attempts: numberArray(messages.map(({ attempt }) => attempt)),
    messageIds: textArray(messages.map(({ messageId }) => messageId)),
  });
  const places = new Map(rows.map((row) => [enqueueIdOf(row), row.messageId]));
  const unknown = messages.filter((message) => !places.has(enqueueIdOf(message)));
  const rest = await readMessages(
    sql,
    unknown.map(({ jobId }) => jobId),
  );
  return messages.map((message) => {
    const enqueueId = enqueueIdOf(message);
    const row = rest.get(enqueueId);
    const messageId = places.get(enqueueId) ?? row?.messageId ?? null;
    if (messageId !== null) return { messageId };
    return row ? 'locked' : 'ended';
  });
}

const read = preparedStatement(
  ['jobIds'],
  `
select job_id as "jobId", stream, attempt, message_id as "messageId", ${messageNames('message')}
  as "messageIds"
from stream_messages message where job_id = any (@jobIds::uuid[])`,
);

/** A message's row. */
export interface KnownMessage extends Envelope {
  messageId: string | null;
  /** All ids that it had. */
  messageIds: string[];
}

/** The rows of the messages of these jobs, by enqueue id. */
export async function readMessages(sql: Sql, jobIds: readonly string[]): Promise<Map<string, KnownMessage>> {
  if (jobIds.length === 0) return new Map();
  const rows = await read.query<KnownMessage>(sql, { jobIds: uuidArray(jobIds) });
  return new Map(rows.map((row) => [enqueueIdOf(row), row]));
}

// Moves the time on, so that no other server takes the same rows while this one sends them.
const claimUnsent = preparedStatement(
  ['limit', 'unsentMs'],
  `
with taken as materialized (
  select job_id from stream_messages
  where message_id is null and written_at < (select clock_timestamp() - @unsentMs::float8 * interval '1 ms')
  order by written_at limit @limit for update skip locked
)
update stream_messages message set written_at = clock_timestamp()
from taken where ${keyEquals('message.job_id', 'taken.job_id')}
returning message.job_id as "jobId", stream, attempt`,
);

/** Up to `limit` messages that are unsent for `unsentMs`. No other server gets them for the same time. */
export const claimUnsentMessages = (sql: Sql, limit: number, unsentMs: number): Promise<Envelope[]> =>
  claimUnsent.query<Envelope>(sql, { limit, unsentMs });

/** A position in the queues of all streams. */
export interface QueuePosition {
  laneId: number;
  priority: number;
  seq: string;
}

export const queueStart: QueuePosition = { laneId: -1, priority: -1, seq: '-1' };

// Each row is looked up by its key: with a join, the planner may read a whole table to find a slice of it. A
// job is locked before it gets a message, so that no other transaction ends its attempt meanwhile.
const addMissing = statement(
  ['afterLane', 'afterPriority', 'afterSeq', 'limit'],
  `
with slice as materialized (
  select head.* from lanes lane cross join lateral (
    select live_jobs.job_id, live_jobs.lane_id, live_jobs.priority, live_jobs.seq from live_jobs
    where live_jobs.lane_id = lane.lane_id and state = ${stateNumber('QUEUED')} and check_at is null
      and (live_jobs.priority, live_jobs.seq) > (
        case when lane.lane_id = @afterLane::int then @afterPriority::smallint else -1::smallint end,
        case when lane.lane_id = @afterLane::int then @afterSeq::bigint else -1::bigint end)
    order by live_jobs.priority, live_jobs.seq limit @limit::int
  ) head
  where lane.stream <> '' and lane.lane_id >= @afterLane::int
  order by lane.lane_id, head.priority, head.seq limit @limit::int
), missing as materialized (
  select slice.job_id from slice left join lateral (
    select 1 as one from stream_messages message where message.job_id = slice.job_id limit 1
  ) message on true
  where message.one is null
), locked as materialized (
  select job_id, lane_id, state, attempts from live_jobs
  where job_id = any (array(select job_id from missing))
  order by job_id for update skip locked
), added as (
  insert into stream_messages (job_id, stream, attempt, written_at)
  select job_id, lanes.stream, attempts + 1, clock_timestamp()
  from locked cross join ${lateralByKey('lanes', 'lane_id', 'locked.lane_id')} lanes
  where state = ${stateNumber('QUEUED')}
  on conflict (job_id) do nothing
  returning job_id, stream, attempt
), last as (
  select lane_id, priority, seq, count(*) over () as checked from slice
  order by lane_id desc, priority desc, seq desc limit 1
)
select last.lane_id as "laneId", last.priority, last.seq::text as seq, last.checked::int as checked,
  added.job_id as "jobId", added.stream, added.attempt
from last left join added on true`,
);

/** A slice of a walk: its results, and the position to continue from; undefined at the end of the walk. */
export interface Slice<Place, Found> {
  next: Place | undefined;
  found: Found[];
}

/** Checks the next waiting jobs of streams, and writes the messages of those that have none. */
export async function addMissingMessages(
  sql: Sql,
  after: QueuePosition,
  limit: number,
): Promise<Slice<QueuePosition, Envelope>> {
  type Row = QueuePosition & { checked: number } & (Envelope | { jobId: null });
  const rows = await addMissing.query<Row>(sql, {
    afterLane: after.laneId,
    afterPriority: after.priority,
    afterSeq: after.seq,
    limit,
  });
  const found = rows.flatMap((row) =>
    row.jobId === null ? [] : { jobId: row.jobId, stream: row.stream, attempt: row.attempt },
  );
  const [last] = rows;
  return { next: last?.checked === limit ? last : undefined, found };
}

export const nowhere = '00000000-0000-0000-0000-000000000000';

const inspect = preparedStatement(
  ['after', 'limit'],
  `
with slice as materialized (
  select * from stream_messages where job_id > @after::uuid order by job_id limit @limit::int
)
select slice.job_id as "jobId", slice.stream, slice.attempt, slice.message_id as "messageId",
  coalesce(live.state = ${stateNumber('QUEUED')}, false) as queued,
  live.state is null or slice.attempt <> live.attempts
    + case when live.state in (${leasedStates.map(stateNumber).join(', ')}) then 0 else 1 end as stale
from slice left join lateral (
  select state, attempts from live_jobs live where live.job_id = slice.job_id limit 1
) live on true
order by slice.job_id`,
);

/** A message's row, and the state of its job. */
export interface MessageRow extends Envelope {
  messageId: string | null;
  queued: boolean;
  /** Its attempt has ended without removing it: a server that keeps no messages changed the job. */
  stale: boolean;
}

/** The next rows of messages, in the order of their jobs' ids. */
export async function inspectMessages(
  sql: Sql,
  after: string,
  limit: number,
): Promise<Slice<string, MessageRow>> {
  const found = await inspect.query<MessageRow>(sql, { after, limit });
  return { next: found.length < limit ? undefined : found.at(-1)?.jobId, found };
}

/** Locks those of these rows that are unchanged since they were read; its parameters are `seenNames`. */
const unchanged = `
seen as materialized (
  select * from unnest(@jobIds::uuid[], @attempts::int[], @messageIds::text[])
    as seen (job_id, attempt, message_id)
), same as materialized (
  select message.job_id from (select * from seen order by job_id) seen
  join ${lateralByKey('stream_messages', 'job_id', 'seen.job_id', 'for update skip locked')} message
    on message.attempt = seen.attempt and message.message_id is not distinct from seen.message_id
)`;

const seenNames = ['jobIds', 'attempts', 'messageIds'] as const;

const seenParams = (rows: readonly MessageRow[]): Record<(typeof seenNames)[number], string> => ({
  jobIds: uuidArray(rows.map(({ jobId }) => jobId)),
  attempts: numberArray(rows.map(({ attempt }) => attempt)),
  messageIds: textArray(rows.map(({ messageId }) => messageId)),
});

const removeStale = statement(
  seenNames,
  `
with ${unchanged}
delete from stream_messages message using same where ${keyEquals('message.job_id', 'same.job_id')}
returning message.stream, message.message_id as "messageId"`,
);

/** Removes stale rows, and returns the messages that had been sent. */
export async function removeStaleMessages(sql: Sql, rows: readonly MessageRow[]): Promise<SentMessage[]> {
  if (rows.length === 0) return [];
  type Row = { stream: string; messageId: string | null };
  const removed = await removeStale.query<Row>(sql, seenParams(rows));
  return removed.flatMap(({ stream, messageId }) => (messageId === null ? [] : { stream, messageId }));
}

/** A grant contains the id that its statement read, so workers receive at most the last few ids. */
const earlierIdsMax = 8;

// A concurrent grant may send its worker the id that is removed here, so the row keeps it as an earlier one.
const deleteLost = statement(
  seenNames,
  `
with ${unchanged}
update stream_messages message set message_id = null, written_at = clock_timestamp(),
  earlier_ids = (array_prepend(message.message_id, message.earlier_ids))[1:${earlierIdsMax}]
from same where ${keyEquals('message.job_id', 'same.job_id')}
returning message.job_id as "jobId", message.stream, message.attempt`,
);

/** Removes the ids of messages that Redis lost, and returns the messages to send again. */
export async function deleteLostMessages(sql: Sql, rows: readonly MessageRow[]): Promise<Envelope[]> {
  return rows.length === 0 ? [] : deleteLost.query<Envelope>(sql, seenParams(rows));
}

/** The streams that jobs were ever submitted to, up to `limit`. */
export async function listStreams(sql: EntitySql, limit: number): Promise<string[]> {
  const rows = await select(sql, (tables) =>
    tables
      .selectFrom('lanes')
      .select('stream')
      .distinct()
      .where('stream', '<>', '')
      .orderBy('stream')
      .limit(limit),
  );
  return rows.map(({ stream }) => stream);
}

/**
 * A unique name of this database, for keys that several databases might otherwise share. A copy in the same
 * cluster has the same id, and another oid.
 */
export async function databaseName(sql: EntitySql): Promise<string> {
  const [row] = await select(sql, (tables) =>
    tables.selectFrom('identity').select(
      raw<string>`database_id || '-' || (select oid from pg_database
          where datname = current_database())`.as('name'),
    ),
  );
  if (!row) throw new Error('the database did not tell its name');
  return row.name;
}

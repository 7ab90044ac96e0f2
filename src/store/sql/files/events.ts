import {
  type FileEvent,
  type FileEventType,
  fileEventNumber,
  fileEventTypes,
} from '../../../domain/files/file-lease.ts';
import type { JsonObject } from '../../../domain/jobs/job.ts';
import { type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';

/**
 * The history of files and their owners. Append-only; events are written in the transaction of the change.
 */

export interface NewFileEvent {
  type: FileEventType;
  ownerId: string;
  repository?: string;
  path?: string;
  fence?: string;
  contentionId?: string;
  actor: string;
  data?: JsonObject;
}

/** The insert, for a statement that has a `clock`; `@events` are the `eventsParam`. */
export const eventRows = `
insert into file_events (txid, at, type, owner_id, repository, path, fence, contention_id, actor, data)
select pg_current_xact_id()::text::bigint, now, type, owner_id, repository, path, fence, contention_id, actor,
  data
from clock, jsonb_to_recordset(@events::jsonb) as event (type smallint, owner_id text, repository text,
  path text,
  fence bigint, contention_id uuid, actor text, data jsonb)`;

export const eventsParam = (events: readonly NewFileEvent[]): string =>
  JSON.stringify(
    events.map(({ type, ownerId, contentionId, ...event }) => ({
      ...event,
      type: fileEventNumber(type),
      owner_id: ownerId,
      contention_id: contentionId,
    })),
  );

const write = preparedStatement(
  ['nowMs', 'events'],
  `with clock as materialized (select to_timestamp(@nowMs::float8 / 1000.0) as now) ${eventRows}`,
);

/** Maximum number of events in one statement: PostgreSQL accepts no more than 256 MB of them at once. */
const eventsMax = 10_000;

/** Writes events in the order given. */
export async function writeFileEvents(
  sql: Sql,
  events: readonly NewFileEvent[],
  nowMs: number,
): Promise<void> {
  for (let at = 0; at < events.length; at += eventsMax)
    await write.query(sql, { nowMs, events: eventsParam(events.slice(at, at + eventsMax)) });
}

/** A position in the history: everything up to it has been delivered. */
export interface FileEventPosition {
  txid: string;
  eventId: string;
}

const horizon = preparedStatement([], 'select pg_snapshot_xmin(pg_current_snapshot())::text as txid');

/** The position before which no transaction can write any more. */
export async function eventHorizon(sql: Sql, signal?: AbortSignal): Promise<FileEventPosition> {
  const [row] = await horizon.query<{ txid: string }>(sql, {}, signal);
  if (!row) throw new Error('the database did not tell its horizon');
  return { txid: row.txid, eventId: '0' };
}

const follow = preparedStatement(
  ['afterTxid', 'afterEventId', 'endTxid', 'repository', 'ownerId', 'limit'],
  `
select event_id, txid, at, type, owner_id, repository, path, fence, contention_id, actor, data
from file_events
where (txid, event_id) > (@afterTxid::bigint, @afterEventId::bigint) and txid < @endTxid::bigint
  and (@repository::text is null or repository = @repository)
    and (@ownerId::text is null or owner_id = @ownerId)
order by txid, event_id limit @limit`,
);

const anyBeyond = preparedStatement(
  ['endTxid'],
  'select exists (select from file_events where txid >= @endTxid::bigint) as found',
);

export interface FollowedEvents {
  events: FileEvent[];
  place: FileEventPosition;
  /** More events can be read at once. */
  more: boolean;
  /** Some events can be delivered only when an earlier transaction has ended. */
  pending: boolean;
}

export interface FileEventFilter {
  repository: string | null;
  ownerId: string | null;
}

/**
 * The events after a position. Transactions commit in another order than they begin. Therefore only events of
 * transactions older than every running one are returned, and nothing is ever added before the returned
 * position.
 */
export async function followFileEvents(
  sql: Sql,
  after: FileEventPosition,
  { repository, ownerId }: FileEventFilter,
  limit: number,
  signal?: AbortSignal,
): Promise<FollowedEvents> {
  const end = await eventHorizon(sql, signal);
  type Row = {
    event_id: string;
    txid: string;
    at: string;
    type: number;
    owner_id: string;
    repository: string | null;
    path: string | null;
    fence: string | null;
    contention_id: string | null;
    actor: string;
    data: JsonObject | null;
  };
  const rows = await follow.query<Row>(
    sql,
    { afterTxid: after.txid, afterEventId: after.eventId, endTxid: end.txid, repository, ownerId, limit },
    signal,
  );
  const last = rows.at(-1);
  const more = last !== undefined && rows.length === limit;
  const place = more ? { txid: last.txid, eventId: last.event_id } : laterOf(after, end);
  const [beyond] = more ? [] : await anyBeyond.query<{ found: boolean }>(sql, { endTxid: end.txid }, signal);
  const events = rows.map((row) => ({
    eventId: row.event_id,
    tsMs: timeMs(row.at),
    type: fileEventTypes[row.type] as FileEventType,
    ownerId: row.owner_id,
    repository: row.repository,
    path: row.path,
    fence: row.fence,
    contentionId: row.contention_id,
    data: { by: row.actor, ...row.data },
  }));
  // A later event of a file may belong to a transaction that began earlier; event ids give the right order.
  events.sort((a, b) => Number(a.eventId) - Number(b.eventId));
  return { events, place, more, pending: beyond?.found ?? false };
}

const laterOf = (one: FileEventPosition, other: FileEventPosition): FileEventPosition =>
  BigInt(other.txid) > BigInt(one.txid) ? other : one;

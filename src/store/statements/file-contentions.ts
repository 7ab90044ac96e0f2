import {
  type ContentionState,
  contentionStateNumber,
  contentionStates,
  unusedMs,
} from '../../domain/contentions.ts';
import type { OwnerProfile } from '../../domain/file-lease.ts';
import { hot } from '../prepared.ts';
import { byKeys, rowOf, type Sql, timeMs } from '../sql.ts';
import { numberArray, textArray, uuidArray } from './arrays.ts';

/** Contentions, a row for each file of each. They are written only under their owner's lock; see `file-owners.ts`. */

/** One file of a contention. */
export interface ContendedFile {
  contentionId: string;
  fileId: string;
  ownerId: string;
  repository: string;
  path: string;
  state: ContentionState;
  deniedAtMs: number;
  retryAtMs: number;
  retriedAtMs: number | null;
  haltedAtMs: number | null;
  closedAtMs: number | null;
  /** It was told that its retry is due. */
  isAnnounced: boolean;
  /** Who held the file when it was denied. */
  blockerId: string;
  /** Who stood in the way last. */
  blocker: { ownerId: string; profile: OwnerProfile; acquiredAtMs: number; lastHeartbeatAtMs: number };
}

interface Row extends OwnerProfile {
  contention_id: string;
  file_id: string;
  owner_id: string;
  repository: string;
  path: string;
  state: number;
  denied_at: string;
  retry_at: string;
  retried_at: string | null;
  halted_at: string | null;
  closed_at: string | null;
  is_announced: boolean;
  blocker_id: string;
  last_id: string;
  last_acquired_at: string;
  last_heartbeat_at: string;
}

const columns = `contention.contention_id, contention.file_id, contention.owner_id, contention.repository,
  contention.path, contention.state, contention.denied_at, contention.retry_at, contention.retried_at,
  contention.halted_at, contention.closed_at, contention.blocker_id,
  coalesce(contention.check_at > contention.retry_at, false) as is_announced,
  coalesce(contention.blocker_now_id, contention.blocker_id) as last_id,
  coalesce(contention.blocker_now_acquired_at, contention.blocker_acquired_at) as last_acquired_at,
  blocker.last_heartbeat_at, blocker.agent, blocker.host, blocker.pid, blocker.branch`;

const withBlocker = `cross join ${rowOf('file_owners', 'owner_id', 'coalesce(contention.blocker_now_id, contention.blocker_id)')} blocker`;

function toFile(row: Row): ContendedFile {
  const { agent, host, pid, branch } = row;
  return {
    contentionId: row.contention_id,
    fileId: row.file_id,
    ownerId: row.owner_id,
    repository: row.repository,
    path: row.path,
    state: contentionStates[row.state] as ContentionState,
    deniedAtMs: timeMs(row.denied_at),
    retryAtMs: timeMs(row.retry_at),
    retriedAtMs: timeMs(row.retried_at),
    haltedAtMs: timeMs(row.halted_at),
    closedAtMs: timeMs(row.closed_at),
    isAnnounced: row.is_announced,
    blockerId: row.blocker_id,
    blocker: {
      ownerId: row.last_id,
      profile: { agent, host, pid, branch },
      acquiredAtMs: timeMs(row.last_acquired_at),
      lastHeartbeatAtMs: timeMs(row.last_heartbeat_at),
    },
  };
}

const readByIds = hot(`
select ${columns}
from (select * from file_contentions where contention_id = any ($1::uuid[]) offset 0) contention ${withBlocker}
order by contention.contention_id, contention.path`);

/** All files of these contentions, closed ones too, by their paths. */
export async function readContentions(
  sql: Sql,
  contentionIds: readonly string[],
  signal?: AbortSignal,
): Promise<ContendedFile[]> {
  if (contentionIds.length === 0) return [];
  return (await sql.query<Row>(readByIds, [uuidArray(contentionIds)], signal)).map(toFile);
}

const readOpen = hot(`
select ${columns}
from unnest($1::text[]) as wanted (owner_id)
cross join lateral (
  select * from file_contentions where owner_id = wanted.owner_id and closed_at is null offset 0
) contention ${withBlocker}
order by contention.contention_id, contention.path`);

/** All open contentions of these owners. */
export async function contentionsOfOwners(sql: Sql, ownerIds: readonly string[]): Promise<ContendedFile[]> {
  if (ownerIds.length === 0) return [];
  return (await sql.query<Row>(readOpen, [textArray(ownerIds)])).map(toFile);
}

/** A file whose retry was blocked. */
export interface Halt {
  contentionId: string;
  fileId: string;
  blockerId: string;
  blockerAcquiredAtMs: number;
}

const halt = hot(`
update file_contentions contention set state = ${contentionStateNumber('HALTED')}, retried_at = now, halted_at = now,
  blocker_now_id = halted.blocker_id, blocker_now_acquired_at = to_timestamp(halted.acquired_at / 1000.0),
  check_at = null
from (select to_timestamp($1::float8 / 1000.0) as now) clock,
  unnest($2::uuid[], $3::uuid[], $4::text[], $5::float8[]) as halted (contention_id, file_id, blocker_id, acquired_at)
where ${byKeys('(contention.contention_id, contention.file_id)', '(halted.contention_id, halted.file_id)')}`);

export async function haltFiles(sql: Sql, halts: readonly Halt[], nowMs: number): Promise<void> {
  if (halts.length === 0) return;
  await sql.query(halt, [
    nowMs,
    uuidArray(halts.map(({ contentionId }) => contentionId)),
    uuidArray(halts.map(({ fileId }) => fileId)),
    textArray(halts.map(({ blockerId }) => blockerId)),
    numberArray(halts.map(({ blockerAcquiredAtMs }) => blockerAcquiredAtMs)),
  ]);
}

/** How a contention ends for one of its files. */
export interface Closing {
  contentionId: string;
  fileId: string;
  state: ContentionState;
}

const close = hot(`
update file_contentions contention set state = closed.state, closed_at = now, check_at = null,
  retried_at = case when closed.state = ${contentionStateNumber('GRANTED')} then now else contention.retried_at end
from (select to_timestamp($1::float8 / 1000.0) as now) clock,
  unnest($2::uuid[], $3::uuid[], $4::smallint[]) as closed (contention_id, file_id, state)
where ${byKeys('(contention.contention_id, contention.file_id)', '(closed.contention_id, closed.file_id)')}`);

export async function closeFiles(sql: Sql, closings: readonly Closing[], nowMs: number): Promise<void> {
  if (closings.length === 0) return;
  await sql.query(close, [
    nowMs,
    uuidArray(closings.map(({ contentionId }) => contentionId)),
    uuidArray(closings.map(({ fileId }) => fileId)),
    numberArray(closings.map(({ state }) => contentionStateNumber(state))),
  ]);
}

const announce = hot(`
update file_contentions contention set check_at = contention.retry_at + interval '${unusedMs} ms'
from unnest($1::uuid[], $2::uuid[]) as due (contention_id, file_id)
where ${byKeys('(contention.contention_id, contention.file_id)', '(due.contention_id, due.file_id)')}`);

/** The retries of these files were told to be due; next they lapse. */
export async function markDue(
  sql: Sql,
  files: readonly { contentionId: string; fileId: string }[],
): Promise<void> {
  if (files.length === 0) return;
  const ids = uuidArray(files.map(({ contentionId }) => contentionId));
  await sql.query(announce, [ids, uuidArray(files.map(({ fileId }) => fileId))]);
}

export interface ContentionFilter {
  repository: string | null;
  ownerId: string | null;
  state: 'CONTENDED' | 'HALTED' | null;
  cursor: string | null;
  limit: number;
}

/** The index of the open ones has this as its condition. */
const firstClosed = contentionStateNumber('GRANTED');

const list = `
with page as materialized (
  select distinct contention_id from file_contentions
  where state < ${firstClosed} and ($1::text is null or repository = $1) and ($2::text is null or owner_id = $2)
    and ($3::smallint is null or state = $3) and ($4::uuid is null or contention_id < $4)
  order by contention_id desc limit $5
)
select ${columns}
from page join file_contentions contention on contention.contention_id = page.contention_id ${withBlocker}
where contention.state < ${firstClosed} and ($3::smallint is null or contention.state = $3)
order by contention.contention_id desc, contention.state desc, contention.path`;

/** The files of the open contentions of a page, newest first. */
export async function listContentions(
  sql: Sql,
  { repository, ownerId, state, cursor, limit }: ContentionFilter,
  signal?: AbortSignal,
): Promise<ContendedFile[]> {
  const number = state === null ? null : contentionStateNumber(state);
  const rows = await sql.query<Row>(list, [repository, ownerId, number, cursor, limit], signal);
  return rows.map(toFile);
}

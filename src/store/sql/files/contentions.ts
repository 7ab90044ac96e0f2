import {
  type ContentionState,
  contentionStateNumber,
  contentionStates,
  unusedMs,
} from '../../../domain/files/contention-policy.ts';
import { instructions, type KeptInstruction, type OwnerProfile } from '../../../domain/files/file-lease.ts';
import { keysEqual, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement, statement } from '../../connection/statement.ts';
import { numberArray, textArray, uuidArray } from '../array-params.ts';
import { type ProfileRecord, profileColumns, toProfile } from './owners.ts';

/**
 * Contentions, one row for each of their files. They are written only under their owner's lock; see
 * `owners.ts`.
 */

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
  /** The owner was notified that its retry is due. */
  isAnnounced: boolean;
  /** An operator's decision while the owner was not alive. */
  keptInstruction: KeptInstruction | null;
  /** The holder of the file at the denial, and since when. */
  blockerId: string;
  blockerAcquiredAtMs: number;
  /** The last known holder. */
  blocker: { ownerId: string; profile: OwnerProfile; acquiredAtMs: number; lastHeartbeatAtMs: number };
}

export interface ContentionRecord extends ProfileRecord {
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
  kept_instruction: number | null;
  instructed_at: string | null;
  instructed_by: string | null;
  instruction_reason: string | null;
  blocker_id: string;
  blocker_acquired_at: string;
  last_id: string;
  last_acquired_at: string;
  last_heartbeat_at: string;
}

const columns = `contention.contention_id, contention.file_id, contention.owner_id, contention.repository,
  contention.path, contention.state, contention.denied_at, contention.retry_at, contention.retried_at,
  contention.halted_at, contention.closed_at, contention.blocker_id, contention.blocker_acquired_at,
  contention.kept_instruction, contention.instructed_at, contention.instructed_by,
  contention.instruction_reason, coalesce(contention.check_at > contention.retry_at, false) as is_announced,
  coalesce(contention.blocker_now_id, contention.blocker_id) as last_id,
  coalesce(contention.blocker_now_acquired_at, contention.blocker_acquired_at) as last_acquired_at,
  blocker.last_heartbeat_at, ${profileColumns('blocker')}`;

const withBlocker = `cross join ${lateralByKey('file_owners', 'owner_id', 'coalesce(contention.blocker_now_id, contention.blocker_id)')} blocker`;

export function toContendedFile(row: ContentionRecord): ContendedFile {
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
    keptInstruction: keptIn(row),
    blockerId: row.blocker_id,
    blockerAcquiredAtMs: timeMs(row.blocker_acquired_at),
    blocker: {
      ownerId: row.last_id,
      profile: toProfile(row),
      acquiredAtMs: timeMs(row.last_acquired_at),
      lastHeartbeatAtMs: timeMs(row.last_heartbeat_at),
    },
  };
}

function keptIn(row: ContentionRecord): KeptInstruction | null {
  if (row.kept_instruction === null) return null;
  const instruction = instructions[row.kept_instruction];
  if (!instruction || row.instructed_at === null || row.instructed_by === null)
    throw new Error(`contention ${row.contention_id} has an instruction that this version does not know`);
  return {
    instruction,
    instructedAtMs: timeMs(row.instructed_at),
    instructedBy: row.instructed_by,
    reason: row.instruction_reason,
  };
}

const readByIds = preparedStatement(
  ['contentionIds'],
  `
select ${columns}
from (select * from file_contentions
  where contention_id = any (@contentionIds::uuid[]) offset 0) contention ${withBlocker}
order by contention.contention_id, contention.path`,
);

/** All files of these contentions, closed ones included, by path. */
export async function readContentions(
  sql: Sql,
  contentionIds: readonly string[],
  signal?: AbortSignal,
): Promise<ContendedFile[]> {
  if (contentionIds.length === 0) return [];
  return (
    await readByIds.query<ContentionRecord>(sql, { contentionIds: uuidArray(contentionIds) }, signal)
  ).map(toContendedFile);
}

const readOpen = preparedStatement(
  ['ownerIds'],
  `
select ${columns}
from unnest(@ownerIds::text[]) as wanted (owner_id)
cross join lateral (
  select * from file_contentions where owner_id = wanted.owner_id and closed_at is null offset 0
) contention ${withBlocker}
order by contention.contention_id, contention.path`,
);

/** All open contentions of these owners. */
export async function contentionsOfOwners(sql: Sql, ownerIds: readonly string[]): Promise<ContendedFile[]> {
  if (ownerIds.length === 0) return [];
  return (await readOpen.query<ContentionRecord>(sql, { ownerIds: textArray(ownerIds) })).map(
    toContendedFile,
  );
}

/** A file whose retry was blocked. */
export interface Halt {
  contentionId: string;
  fileId: string;
  blockerId: string;
  blockerAcquiredAtMs: number;
}

const halt = preparedStatement(
  ['nowMs', 'contentionIds', 'fileIds', 'blockerIds', 'blockedSince'],
  `
update file_contentions contention set state = ${contentionStateNumber('HALTED')}, retried_at = now,
  halted_at = now,
  blocker_now_id = halted.blocker_id, blocker_now_acquired_at = to_timestamp(halted.acquired_at / 1000.0),
  check_at = null
from (select to_timestamp(@nowMs::float8 / 1000.0) as now) clock,
  unnest(@contentionIds::uuid[], @fileIds::uuid[], @blockerIds::text[], @blockedSince::float8[])
    as halted (contention_id, file_id, blocker_id, acquired_at)
where ${keysEqual('(contention.contention_id, contention.file_id)', '(halted.contention_id, halted.file_id)')}`,
);

export async function haltContentions(sql: Sql, halts: readonly Halt[], nowMs: number): Promise<void> {
  if (halts.length === 0) return;
  await halt.query(sql, {
    nowMs,
    contentionIds: uuidArray(halts.map(({ contentionId }) => contentionId)),
    fileIds: uuidArray(halts.map(({ fileId }) => fileId)),
    blockerIds: textArray(halts.map(({ blockerId }) => blockerId)),
    blockedSince: numberArray(halts.map(({ blockerAcquiredAtMs }) => blockerAcquiredAtMs)),
  });
}

const keepInstruction = statement(
  ['contentionId', 'instruction', 'instructedAtMs', 'instructedBy', 'reason'],
  `
update file_contentions set kept_instruction = @instruction::smallint,
  instructed_at = to_timestamp(@instructedAtMs::float8 / 1000.0),
  instructed_by = @instructedBy::text, instruction_reason = @reason::text
where contention_id = @contentionId::uuid and state = ${contentionStateNumber('HALTED')}`,
);

/** Stores an instruction for the halted files of a contention, whose owner is locked; null removes it. */
export async function keepInstructionFor(
  sql: Sql,
  contentionId: string,
  kept: KeptInstruction | null,
): Promise<void> {
  const number = kept && instructions.indexOf(kept.instruction);
  const { instructedAtMs = null, instructedBy = null, reason = null } = kept ?? {};
  await keepInstruction.query(sql, {
    contentionId,
    instruction: number,
    instructedAtMs,
    instructedBy,
    reason,
  });
}

/** How a contention ends for one of its files. */
export interface ContentionClosing {
  contentionId: string;
  fileId: string;
  state: ContentionState;
}

const close = preparedStatement(
  ['nowMs', 'contentionIds', 'fileIds', 'states'],
  `
update file_contentions contention set state = closed.state, closed_at = now, check_at = null,
  retried_at = case when closed.state = ${contentionStateNumber('GRANTED')} then now else contention.retried_at end
from (select to_timestamp(@nowMs::float8 / 1000.0) as now) clock,
  unnest(@contentionIds::uuid[], @fileIds::uuid[], @states::smallint[])
    as closed (contention_id, file_id, state)
where ${keysEqual('(contention.contention_id, contention.file_id)', '(closed.contention_id, closed.file_id)')}`,
);

export async function closeContentions(
  sql: Sql,
  closings: readonly ContentionClosing[],
  nowMs: number,
): Promise<void> {
  if (closings.length === 0) return;
  await close.query(sql, {
    nowMs,
    contentionIds: uuidArray(closings.map(({ contentionId }) => contentionId)),
    fileIds: uuidArray(closings.map(({ fileId }) => fileId)),
    states: numberArray(closings.map(({ state }) => contentionStateNumber(state))),
  });
}

const announce = preparedStatement(
  ['contentionIds', 'fileIds'],
  `
update file_contentions contention set check_at = contention.retry_at + interval '${unusedMs} ms'
from unnest(@contentionIds::uuid[], @fileIds::uuid[]) as due (contention_id, file_id)
where ${keysEqual('(contention.contention_id, contention.file_id)', '(due.contention_id, due.file_id)')}`,
);

/** Records that the owners were notified of these due retries. Their next deadline is the lapse. */
export async function markDue(
  sql: Sql,
  files: readonly { contentionId: string; fileId: string }[],
): Promise<void> {
  if (files.length === 0) return;
  const ids = uuidArray(files.map(({ contentionId }) => contentionId));
  await announce.query(sql, { contentionIds: ids, fileIds: uuidArray(files.map(({ fileId }) => fileId)) });
}

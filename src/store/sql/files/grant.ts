import { contentionStateNumber, retryMs } from '../../../domain/files/contention-policy.ts';
import { type FileName, fileEventNumber } from '../../../domain/files/file-lease.ts';
import type { JsonObject } from '../../../domain/jobs/job.ts';
import type { Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { numberArray, textArray, uuidArray } from '../array-params.ts';
import { eventRows, eventsParam, type NewFileEvent } from './events.ts';
import { held } from './rows.ts';
import { type OwnerTouch, touching, touchNames, touchParams } from './touch-owners.ts';

/** A file that is granted to an owner. */
export interface NewFileLease {
  file: FileName;
  ownerId: string;
  /** The owner whose contention the grant closes. */
  callerId: string;
}

/** A file that is denied for the first time. */
export interface Denial {
  contentionId: string;
  ownerId: string;
  file: FileName;
  blockerId: string;
  blockerAcquiredAtMs: number;
}

/** The decisions for a batch of requests. */
export interface GrantRequest {
  touches: readonly OwnerTouch[];
  grants: readonly NewFileLease[];
  denials: readonly Denial[];
  /** Other events. The statement itself writes those of grants, because it generates their fences. */
  events: readonly NewFileEvent[];
  /** The actor and the details of the grants; without an actor each owner is its own. */
  cause?: { actor: string; data?: JsonObject } | undefined;
}

// A file without a row is inserted, and one with a row is checked again: another transaction may have taken
// it. The fence comes from the sequence of all leases, so the later of two leases of a file has the higher
// one. The parameters are never joined a second time, which would compare every file with every other.
const grantStatement = preparedStatement(
  [
    'nowMs',
    'fileIds',
    'repositories',
    'paths',
    'ownerIds',
    'contentionIds',
    'deniedFileIds',
    'deniedOwnerIds',
    'deniedRepositories',
    'deniedPaths',
    'blockerIds',
    'blockedSince',
    'actor',
    'grantData',
    'events',
    'namedOwnerIds',
    'namedCallerIds',
    ...touchNames,
  ],
  `
with clock as materialized (
  select to_timestamp(@nowMs::float8 / 1000.0) as now
), touched as (
  ${touching}
), granted as (
  insert into file_leases as file (file_id, repository, path, state, owner_id, acquired_at, fence)
  select file_id, repository, path, ${held}, owner_id, now, nextval('lease_fence')
  from clock, unnest(@fileIds::uuid[], @repositories::text[], @paths::text[], @ownerIds::text[])
    as wanted (file_id, repository, path, owner_id)
  order by file_id
  on conflict (file_id) do update set state = excluded.state, owner_id = excluded.owner_id,
    acquired_at = excluded.acquired_at, fence = excluded.fence, ended_at = null, end_reason = null
  where file.state is distinct from ${held}
  returning file_id, repository, path, owner_id, fence
), denied as (
  insert into file_contentions (contention_id, file_id, owner_id, repository, path, state, denied_at,
    retry_at, blocker_id, blocker_acquired_at, check_at)
  select contention_id, file_id, owner_id, repository, path, ${contentionStateNumber('CONTENDED')}, now,
    now + interval '${retryMs} ms', blocker_id, to_timestamp(acquired_at / 1000.0),
      now + interval '${retryMs} ms'
  from clock, unnest(@contentionIds::uuid[], @deniedFileIds::uuid[], @deniedOwnerIds::text[],
    @deniedRepositories::text[], @deniedPaths::text[], @blockerIds::text[], @blockedSince::float8[])
    as denied (contention_id, file_id, owner_id, repository, path, blocker_id, acquired_at)
), recorded_grants as (
  insert into file_events (txid, at, type, owner_id, repository, path, fence, contention_id, actor, data)
  select pg_current_xact_id()::text::bigint, now, ${fileEventNumber('FILE_GRANTED')}, owner_id, repository,
    path, fence, (select contention_id from file_contentions contention
      where contention.file_id = granted.file_id and contention.closed_at is null and contention.owner_id =
        case when cardinality(@namedOwnerIds::text[]) = 0 then granted.owner_id else coalesce(
          (select caller_id from unnest(@namedOwnerIds::text[], @namedCallerIds::text[])
            as named (owner_id, caller_id)
            where named.owner_id = granted.owner_id limit 1), granted.owner_id) end),
    coalesce(@actor::text, owner_id), @grantData::jsonb
  from granted, clock
), recorded as (
  ${eventRows}
)
select file_id, fence from granted`,
);

/**
 * Grants files to their new owners, records denials, and writes the touches of the owners and all events, in
 * one statement, because a batch takes as long as its round trips. Returns the fences of files that were
 * really free.
 */
export async function grantFiles(
  sql: Sql,
  { touches, grants, denials, events, cause }: GrantRequest,
  nowMs: number,
): Promise<Map<string, string>> {
  const named = grants.filter(({ ownerId, callerId }) => callerId !== ownerId);
  const rows = await grantStatement.query<{ file_id: string; fence: string }>(sql, {
    nowMs,
    fileIds: uuidArray(grants.map(({ file }) => file.fileId)),
    repositories: textArray(grants.map(({ file }) => file.repository)),
    paths: textArray(grants.map(({ file }) => file.path)),
    ownerIds: textArray(grants.map(({ ownerId }) => ownerId)),
    contentionIds: uuidArray(denials.map(({ contentionId }) => contentionId)),
    deniedFileIds: uuidArray(denials.map(({ file }) => file.fileId)),
    deniedOwnerIds: textArray(denials.map(({ ownerId }) => ownerId)),
    deniedRepositories: textArray(denials.map(({ file }) => file.repository)),
    deniedPaths: textArray(denials.map(({ file }) => file.path)),
    blockerIds: textArray(denials.map(({ blockerId }) => blockerId)),
    blockedSince: numberArray(denials.map(({ blockerAcquiredAtMs }) => blockerAcquiredAtMs)),
    actor: cause?.actor ?? null,
    grantData: cause?.data === undefined ? null : JSON.stringify(cause.data),
    events: eventsParam(events),
    namedOwnerIds: textArray(named.map(({ ownerId }) => ownerId)),
    namedCallerIds: textArray(named.map(({ callerId }) => callerId)),
    ...touchParams(touches),
  });
  return new Map(rows.map(({ file_id, fence }) => [file_id, fence]));
}

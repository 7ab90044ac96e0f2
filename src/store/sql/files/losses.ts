import type { LostFile } from '../../../domain/files/file-lease.ts';
import { keyEquals, keysEqual, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { textArray, uuidArray } from '../array-params.ts';
import type { FileLeaseRecord } from './rows.ts';

/** Files that operators took from owners, kept while those owners may not know. */

const add = preparedStatement(
  ['nowMs', 'reason', 'ownerIds', 'fileIds', 'repositories', 'paths', 'fences'],
  `
with lost as (
  insert into file_losses as loss (owner_id, file_id, repository, path, fence, lost_at, reason)
  select lost.*, to_timestamp(@nowMs::float8 / 1000.0), @reason::text
  from unnest(@ownerIds::text[], @fileIds::uuid[], @repositories::text[], @paths::text[], @fences::bigint[])
    as lost (owner_id, file_id, repository, path, fence)
  on conflict (owner_id, file_id) do update set fence = excluded.fence, lost_at = excluded.lost_at,
    reason = excluded.reason
  returning owner_id
)
update file_owners owner set has_losses = true
from (select distinct owner_id from lost) losing_owner
  where ${keyEquals('owner.owner_id', 'losing_owner.owner_id')}`,
);

/** Records these leases as losses of their locked owners, which will be notified. */
export async function addLosses(
  sql: Sql,
  leases: readonly FileLeaseRecord[],
  reason: string,
  nowMs: number,
): Promise<void> {
  if (leases.length === 0) return;
  await add.query(sql, {
    nowMs,
    reason,
    ownerIds: textArray(leases.map(({ owner_id }) => owner_id)),
    fileIds: uuidArray(leases.map(({ file_id }) => file_id)),
    repositories: textArray(leases.map(({ repository }) => repository)),
    paths: textArray(leases.map(({ path }) => path)),
    fences: `{${leases.map(({ fence }) => fence).join(',')}}`,
  });
}

const deleteStatement = preparedStatement(
  ['ownerIds', 'fileIds'],
  `
delete from file_losses loss using unnest(@ownerIds::text[], @fileIds::uuid[]) as known (owner_id, file_id)
where ${keysEqual('(loss.owner_id, loss.file_id)', '(known.owner_id, known.file_id)')}`,
);

/** Deletes losses that these locked owners know. */
export async function deleteLosses(
  sql: Sql,
  known: readonly { ownerId: string; fileId: string }[],
): Promise<void> {
  if (known.length === 0) return;
  const owners = textArray(known.map(({ ownerId }) => ownerId));
  await deleteStatement.query(sql, {
    ownerIds: owners,
    fileIds: uuidArray(known.map(({ fileId }) => fileId)),
  });
}

const read = preparedStatement(
  ['ownerIds', 'limit'],
  `
select loss.* from unnest(@ownerIds::text[]) as wanted (owner_id) cross join lateral (
  select owner_id, repository, path, fence, lost_at, reason from file_losses
  where owner_id = wanted.owner_id order by file_id limit @limit
) loss`,
);

/** The losses of each of these owners, up to `limit`. */
export async function readLosses(
  sql: Sql,
  ownerIds: readonly string[],
  limit: number,
  signal?: AbortSignal,
): Promise<Map<string, LostFile[]>> {
  type Row = {
    owner_id: string;
    repository: string;
    path: string;
    fence: string;
    lost_at: string;
    reason: string;
  };
  const rows = await read.query<Row>(sql, { ownerIds: textArray(ownerIds), limit }, signal);
  const losses = new Map<string, LostFile[]>();
  for (const { owner_id, repository, path, fence, lost_at, reason } of rows) {
    const lost = { repository, path, fence, lostAtMs: timeMs(lost_at), reason };
    losses.set(owner_id, [...(losses.get(owner_id) ?? []), lost]);
  }
  return losses;
}

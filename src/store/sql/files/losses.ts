import type { LostFile } from '../../../domain/files/file-lease.ts';
import { prepared } from '../../connection/prepared-client.ts';
import { keyEquals, keysEqual, type Sql, timeMs } from '../../connection/sql.ts';
import { textArray, uuidArray } from '../array-params.ts';
import type { FileLeaseRecord } from './rows.ts';

/** Files that operators took from owners, kept while those owners may not know. */

const add = prepared(`
with lost as (
  insert into file_losses as loss (owner_id, file_id, repository, path, fence, lost_at, reason)
  select lost.*, to_timestamp($1::float8 / 1000.0), $2::text
  from unnest($3::text[], $4::uuid[], $5::text[], $6::text[], $7::bigint[])
    as lost (owner_id, file_id, repository, path, fence)
  on conflict (owner_id, file_id) do update set fence = excluded.fence, lost_at = excluded.lost_at,
    reason = excluded.reason
  returning owner_id
)
update file_owners owner set has_losses = true
from (select distinct owner_id from lost) loser where ${keyEquals('owner.owner_id', 'loser.owner_id')}`);

/** Records these leases as losses of their locked owners, which will be notified. */
export async function addLosses(
  sql: Sql,
  leases: readonly FileLeaseRecord[],
  reason: string,
  nowMs: number,
): Promise<void> {
  if (leases.length === 0) return;
  await sql.query(add, [
    nowMs,
    reason,
    textArray(leases.map(({ owner_id }) => owner_id)),
    uuidArray(leases.map(({ file_id }) => file_id)),
    textArray(leases.map(({ repository }) => repository)),
    textArray(leases.map(({ path }) => path)),
    `{${leases.map(({ fence }) => fence).join(',')}}`,
  ]);
}

const deleteStatement = prepared(`
delete from file_losses loss using unnest($1::text[], $2::uuid[]) as known (owner_id, file_id)
where ${keysEqual('(loss.owner_id, loss.file_id)', '(known.owner_id, known.file_id)')}`);

/** Deletes losses that these locked owners know. */
export async function deleteLosses(
  sql: Sql,
  known: readonly { ownerId: string; fileId: string }[],
): Promise<void> {
  if (known.length === 0) return;
  const owners = textArray(known.map(({ ownerId }) => ownerId));
  await sql.query(deleteStatement, [owners, uuidArray(known.map(({ fileId }) => fileId))]);
}

const read = prepared(`
select loss.* from unnest($1::text[]) as wanted (owner_id) cross join lateral (
  select owner_id, repository, path, fence, lost_at, reason from file_losses
  where owner_id = wanted.owner_id order by file_id limit $2
) loss`);

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
  const rows = await sql.query<Row>(read, [textArray(ownerIds), limit], signal);
  const losses = new Map<string, LostFile[]>();
  for (const { owner_id, repository, path, fence, lost_at, reason } of rows) {
    const lost = { repository, path, fence, lostAtMs: timeMs(lost_at), reason };
    losses.set(owner_id, [...(losses.get(owner_id) ?? []), lost]);
  }
  return losses;
}

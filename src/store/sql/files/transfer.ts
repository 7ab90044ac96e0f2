import { fileEventNumber } from '../../../domain/files/file-lease.ts';
import type { Loan } from '../../../domain/files/file-lending.ts';
import type { JsonObject } from '../../../domain/jobs/job.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { numberArray, textArray, uuidArray } from '../array-params.ts';
import { type FileLeaseRecord, fileLeaseColumns, held } from './rows.ts';

/** A lease that passes from one locked owner to another: to a sub-agent, or back. */
export interface LoanTransfer {
  fileId: string;
  fromId: string;
  toId: string;
  /** The loan of the new owner. */
  loan: Loan;
  /** The event that ends the lease of the previous owner. */
  endEvent: { type: 'FILE_RELEASED' | 'FILE_RECLAIMED'; data: JsonObject };
  /** The data of the grant's event. */
  grantData: JsonObject;
  actor: string;
}

// Both owners are locked, so the row cannot have changed its owner; the statement checks it all the same.
const transferStatement = preparedStatement(
  [
    'nowMs',
    'fileIds',
    'fromIds',
    'toIds',
    'lenders',
    'lentAts',
    'endTypes',
    'endData',
    'grantData',
    'actors',
  ],
  `
with clock as materialized (
  select to_timestamp(@nowMs::float8 / 1000.0) as now
), wanted as (
  select * from unnest(@fileIds::uuid[], @fromIds::text[], @toIds::text[], @lenders::text[],
    @lentAts::float8[], @endTypes::smallint[], @endData::text[], @grantData::text[], @actors::text[])
    as wanted (file_id, from_id, to_id, lenders, lent_at, end_type, end_data, grant_data, actor)
), locked as materialized (
  select file.place, file.state, file.owner_id, file.file_id, file.repository, file.path, file.acquired_at,
    file.fence, wanted.from_id, wanted.to_id, wanted.lenders as lenders_then, wanted.lent_at as lent_at_then,
      wanted.end_type, wanted.end_data, wanted.grant_data, wanted.actor
  from (select * from wanted order by file_id) wanted
  cross join ${lateralByKey('file_leases', 'file_id', 'wanted.file_id', 'for update')} file
), transferred as materialized (
  update file_leases file set owner_id = locked.to_id, acquired_at = now, fence = nextval('lease_fence'),
    lenders = nullif(locked.lenders_then::text[], '{}'), lent_at = to_timestamp(locked.lent_at_then / 1000.0)
  from locked, clock
  where ${keyEquals('file.file_id', 'locked.file_id')} and locked.state = ${held}
    and locked.owner_id = locked.from_id
  returning file.file_id, file.fence as new_fence, locked.from_id, locked.to_id, locked.repository,
    locked.path, locked.acquired_at, locked.fence, locked.end_type, locked.end_data, locked.grant_data,
      locked.actor
), recorded as (
  insert into file_events (txid, at, type, owner_id, repository, path, fence, contention_id, actor, data)
  select pg_current_xact_id()::text::bigint, now, event.type, event.owner_id, repository, path, event.fence,
    event.contention_id, actor, event.data
  from clock cross join transferred cross join lateral (
    values (0, end_type, from_id, transferred.fence, null::uuid, end_data::jsonb),
      (1, ${fileEventNumber('FILE_GRANTED')}::smallint, to_id, new_fence, (
        select contention.contention_id from file_contentions contention
        where contention.owner_id = to_id and contention.file_id = transferred.file_id
          and contention.closed_at is null
      ), grant_data::jsonb)
  ) as event (n, type, owner_id, fence, contention_id, data)
  order by transferred.file_id, n
)
select ${fileLeaseColumns('transferred', 'owner').replace('transferred.state', '1')}, transferred.new_fence
from (select *, from_id as owner_id from transferred) transferred
cross join ${lateralByKey('file_owners', 'owner_id', 'transferred.from_id')} owner`,
);

/** The previous owner's lease as it was, and the fence of the lease that follows it. */
export type TransferredFile = FileLeaseRecord & { new_fence: string };

/** Transfers leases. Returns only those that their previous owner really held. */
export async function transferFiles(
  sql: Sql,
  transfers: readonly LoanTransfer[],
  nowMs: number,
): Promise<TransferredFile[]> {
  if (transfers.length === 0) return [];
  return transferStatement.query<TransferredFile>(sql, {
    nowMs,
    fileIds: uuidArray(transfers.map(({ fileId }) => fileId)),
    fromIds: textArray(transfers.map(({ fromId }) => fromId)),
    toIds: textArray(transfers.map(({ toId }) => toId)),
    lenders: textArray(transfers.map(({ loan }) => textArray(loan.lenders))),
    lentAts: numberArray(transfers.map(({ loan }) => loan.lentAtMs)),
    endTypes: numberArray(transfers.map(({ endEvent }) => fileEventNumber(endEvent.type))),
    endData: textArray(transfers.map(({ endEvent }) => JSON.stringify(endEvent.data))),
    grantData: textArray(transfers.map(({ grantData }) => JSON.stringify(grantData))),
    actors: textArray(transfers.map(({ actor }) => actor)),
  });
}

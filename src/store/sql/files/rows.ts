import { type FileLease, fileLeaseStates } from '../../../domain/files/file-lease.ts';
import { type Loan, notLent } from '../../../domain/files/file-lending.ts';
import type { Owner } from '../../../domain/files/file-owners.ts';
import { keyEquals, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { numberArray, textArray, uuidArray } from '../array-params.ts';
import {
  type OwnerRecord,
  ownerColumns,
  type ProfileRecord,
  profileColumns,
  toOwner,
  toProfile,
} from './owners.ts';

/** Files and their holders. Rows are locked by their ids, in order, after all owners; see `owners.ts`. */

export const held = fileLeaseStates.indexOf('HELD');

/** The holder of a file. */
export interface Holder {
  owner: Owner;
  acquiredAtMs: number;
  fence: string;
  loan: Loan;
}

/** The columns of a file's row that describe its lease. */
export interface HoldingRecord {
  lease_state: number | null;
  acquired_at: string;
  fence: string;
  /** A JSON array, to avoid the driver's own array parser on this path. */
  lenders: string | null;
  lent_at: string | null;
}

export const holdingColumns = (file: string): string =>
  `${file}.state as lease_state, ${file}.acquired_at, ${file}.fence, to_json(${file}.lenders)::text
    as lenders, ${file}.lent_at`;

export const loanIn = ({ lenders, lent_at }: { lenders: string | null; lent_at: string | null }): Loan =>
  lenders === null ? notLent : { lenders: JSON.parse(lenders) as string[], lentAtMs: timeMs(lent_at) };

/** The holder of a file, from the file's row and its owner's; null for a free file. */
export const holderIn = (row: HoldingRecord & OwnerRecord): Holder | null =>
  row.lease_state === held
    ? { owner: toOwner(row), acquiredAtMs: timeMs(row.acquired_at), fence: row.fence, loan: loanIn(row) }
    : null;

export interface FileLeaseRecord extends ProfileRecord {
  file_id: string;
  repository: string;
  path: string;
  lease_state: number;
  owner_id: string;
  acquired_at: string;
  last_heartbeat_at: string;
  expires_at: string;
  fence: string;
}

export const fileLeaseColumns = (file: string, owner: string): string =>
  `${file}.file_id, ${file}.repository, ${file}.path, ${file}.state as lease_state, ${file}.owner_id,
  ${file}.acquired_at, ${file}.fence, ${owner}.last_heartbeat_at, ${owner}.expires_at,
    ${profileColumns(owner)}`;

export function toFileLease(record: FileLeaseRecord): FileLease {
  const state = fileLeaseStates[record.lease_state];
  if (!state) throw new Error(`the database holds a state this version does not know: ${record.lease_state}`);
  return {
    repository: record.repository,
    path: record.path,
    ownerId: record.owner_id,
    owner: toProfile(record),
    state,
    acquiredAtMs: timeMs(record.acquired_at),
    lastHeartbeatAtMs: timeMs(record.last_heartbeat_at),
    expiresAtMs: timeMs(record.expires_at),
    fence: record.fence,
  };
}

const read = preparedStatement(
  ['fileIds'],
  `
select file.file_id, ${holdingColumns('file')}, ${ownerColumns('owner')}
from unnest(@fileIds::uuid[]) as wanted (file_id)
  cross join ${lateralByKey('file_leases', 'file_id', 'wanted.file_id')} file
left join ${lateralByKey('file_owners', 'owner_id', 'file.owner_id')} owner on file.state = ${held}`,
);

/** The holders of those of these files that have a row; null for free files. */
export async function readFiles(
  sql: Sql,
  fileIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, Holder | null>> {
  type Row = { file_id: string } & HoldingRecord & OwnerRecord;
  const rows = await read.query<Row>(sql, { fileIds: uuidArray(fileIds) }, signal);
  return new Map(rows.map((row) => [row.file_id, holderIn(row)]));
}

const lock = (how: string) =>
  preparedStatement(
    ['fileIds'],
    `
with locked as materialized (
  select file.file_id
  from (select file_id from unnest(@fileIds::uuid[]) as file_id order by file_id) wanted cross join lateral (
    select file_id from file_leases where file_leases.file_id = wanted.file_id and state is distinct
      from ${held}
    for update ${how}
  ) file
)
select date_trunc('milliseconds', clock_timestamp())::text as now, ids
from (select coalesce(array_agg(file_id), '{}')::text as ids from locked) locked_all`,
  );

const lockAll = lock('');
const lockUnlocked = lock('skip locked');

export interface LockedFiles {
  fileIds: Set<string>;
  /** The database's time, read after the locks. */
  nowMs: number;
}

/**
 * Locks those of these files that are free. Without `wait`, files locked by other transactions are left out.
 */
export async function lockFreeFiles(
  sql: Sql,
  fileIds: readonly string[],
  { wait, signal }: { wait: boolean; signal?: AbortSignal | undefined },
): Promise<LockedFiles> {
  type Row = { ids: string; now: string };
  const [row] = await (wait ? lockAll : lockUnlocked).query<Row>(
    sql,
    { fileIds: uuidArray(fileIds) },
    signal,
  );
  if (!row) throw new Error('the database did not tell the time');
  const ids = row.ids === '{}' ? [] : row.ids.slice(1, -1).split(',');
  return { fileIds: new Set(ids), nowMs: timeMs(row.now) };
}

/** A lease that ends. */
export interface FileEnd {
  fileId: string;
  ownerId: string;
  state: 'RELEASED' | 'RECLAIMED';
  reason: string;
}

// Rows are found by key alone and checked afterwards: with both conditions at once, the planner may scan all
// files of an owner for each of them.
const end = preparedStatement(
  ['nowMs', 'fileIds', 'ownerIds', 'states', 'reasons'],
  `
with ending as (
  select * from unnest(@fileIds::uuid[], @ownerIds::text[], @states::smallint[], @reasons::text[])
    as ending (file_id, owner_id, state, reason)
), locked as materialized (
  select file.file_id, file.state as was, file.owner_id as holder_id, ending.owner_id, ending.state,
    ending.reason
  from (select * from ending order by file_id) ending
  cross join ${lateralByKey('file_leases', 'file_id', 'ending.file_id', 'for update')} file
), ended as (
  update file_leases file set state = locked.state, ended_at = to_timestamp(@nowMs::float8 / 1000.0),
    end_reason = locked.reason, lenders = null, lent_at = null
  from locked
  where ${keyEquals('file.file_id', 'locked.file_id')} and locked.was = ${held}
    and locked.holder_id = locked.owner_id
  returning file.*
)
select ${fileLeaseColumns('ended', 'owner')} from ended
  cross join ${lateralByKey('file_owners', 'owner_id', 'ended.owner_id')} owner`,
);

/** Ends leases of locked owners, and returns them as they were before. */
export async function endFiles(
  sql: Sql,
  ends: readonly FileEnd[],
  nowMs: number,
): Promise<FileLeaseRecord[]> {
  if (ends.length === 0) return [];
  return end.query<FileLeaseRecord>(sql, {
    nowMs,
    fileIds: uuidArray(ends.map(({ fileId }) => fileId)),
    ownerIds: textArray(ends.map(({ ownerId }) => ownerId)),
    states: numberArray(ends.map(({ state }) => fileLeaseStates.indexOf(state))),
    reasons: textArray(ends.map(({ reason }) => reason)),
  });
}

const ofOwners = preparedStatement(
  ['ownerIds'],
  `
select file.file_id, file.owner_id, file.repository, to_json(file.lenders)::text as lenders, file.lent_at
from unnest(@ownerIds::text[]) as wanted (owner_id) cross join lateral (
  select * from file_leases where owner_id = wanted.owner_id and state = ${held} offset 0
) file`,
);

/** A file that an owner holds. */
export interface HeldFile {
  fileId: string;
  ownerId: string;
  repository: string;
  loan: Loan;
}

/** All files that these locked owners hold. */
export async function filesOfOwners(sql: Sql, ownerIds: readonly string[]): Promise<HeldFile[]> {
  if (ownerIds.length === 0) return [];
  interface Row {
    file_id: string;
    owner_id: string;
    repository: string;
    lenders: string | null;
    lent_at: string | null;
  }
  const rows = await ofOwners.query<Row>(sql, { ownerIds: textArray(ownerIds) });
  return rows.map((row) => ({
    fileId: row.file_id,
    ownerId: row.owner_id,
    repository: row.repository,
    loan: loanIn(row),
  }));
}

const counts = preparedStatement(
  ['ownerIds', 'countMax'],
  `
select wanted.owner_id, (
  select count(*)::int from (select from file_leases where owner_id = wanted.owner_id
    and state = ${held} limit @countMax) held
) as files
from unnest(@ownerIds::text[]) as wanted (owner_id)`,
);

/** Number of files that each of these owners holds, counted up to `countMax`. */
export async function countFiles(
  sql: Sql,
  ownerIds: readonly string[],
  countMax: number,
): Promise<Map<string, number>> {
  if (ownerIds.length === 0) return new Map();
  const rows = await counts.query<{ owner_id: string; files: number }>(sql, {
    ownerIds: textArray(ownerIds),
    countMax,
  });
  return new Map(rows.map(({ owner_id, files }) => [owner_id, files]));
}

import { type ContentionState, contentionStates } from '../../../domain/files/contention-policy.ts';
import { lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { textArray, uuidArray } from '../array-params.ts';
import { type OwnerRecord, ownerColumns } from './owners.ts';
import { type Holder, type HoldingRecord, held, holderIn, holdingColumns } from './rows.ts';

/** A locked caller, and a file that it requests. */
export interface AskedPair {
  callerId: string;
  fileId: string;
}

/** The part of an open contention that is needed to decide a request. */
export interface OpenContention extends AskedPair {
  contentionId: string;
  state: ContentionState;
  retryAtMs: number;
  /** An instruction is stored for it. */
  isInstructed: boolean;
}

export interface HoldersRead {
  nowMs: number;
  /** The holders of files that have a row; null for free files. */
  files: Map<string, Holder | null>;
  contentions: OpenContention[];
}

// Contentions are looked up one by one (`offset 0`): with a join, the planner may read all open ones for a
// handful of files, and compare each with each requested file.
const readStatement = preparedStatement(
  ['callerIds', 'fileIds'],
  `
select requested.caller_id, requested.file_id, file.file_id is not null as is_known,
  ${holdingColumns('file')},
  contention.contention_id, contention.state as contention_state, contention.retry_at,
  contention.kept_instruction is not null as is_instructed,
  date_trunc('milliseconds', clock_timestamp())::text as now, ${ownerColumns('owner')}
from unnest(@callerIds::text[], @fileIds::uuid[]) as requested (caller_id, file_id)
left join ${lateralByKey('file_leases', 'file_id', 'requested.file_id')} file on true
left join ${lateralByKey('file_owners', 'owner_id', 'file.owner_id')} owner on file.state = ${held}
left join lateral (
  select * from file_contentions
  where owner_id = requested.caller_id and file_id = requested.file_id and closed_at is null offset 0
) contention on true`,
);

/** The holders of the requested files and their open contentions, in one read, without locks. */
export async function readHolders(
  sql: Sql,
  asked: readonly AskedPair[],
  signal?: AbortSignal,
): Promise<HoldersRead> {
  type Row = {
    caller_id: string;
    file_id: string;
    is_known: boolean;
    contention_id: string | null;
    contention_state: number;
    retry_at: string;
    is_instructed: boolean;
    now: string;
  } & HoldingRecord &
    OwnerRecord;
  const callers = textArray(asked.map(({ callerId }) => callerId));
  const rows = await readStatement.query<Row>(
    sql,
    { callerIds: callers, fileIds: uuidArray(asked.map(({ fileId }) => fileId)) },
    signal,
  );
  const seen: HoldersRead = { nowMs: 0, files: new Map(), contentions: [] };
  for (const row of rows) {
    if (row.is_known && !seen.files.has(row.file_id)) seen.files.set(row.file_id, holderIn(row));
    if (row.contention_id === null) continue;
    seen.contentions.push({
      contentionId: row.contention_id,
      fileId: row.file_id,
      callerId: row.caller_id,
      state: contentionStates[row.contention_state] as ContentionState,
      retryAtMs: timeMs(row.retry_at),
      isInstructed: row.is_instructed,
    });
  }
  const last = rows.at(-1);
  if (last) seen.nowMs = timeMs(last.now);
  return seen;
}

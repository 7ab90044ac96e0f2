import type { Holder } from '../../../domain/access/holder.ts';
import { leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Grant } from '../../../domain/leases/lease.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { textArray, uuidArray } from '../array-params.ts';
import { type JobRecord, jobColumns, liveColumns, toJob } from '../jobs/record.ts';
import { lockRequests } from '../lock-requests.ts';
import { activeLeaseOf, type GrantedLeaseRecord, grantedLeaseColumns } from './record.ts';

/** A job with its lease. `message_id` is null if the job has no stream, or if its message has no id yet. */
export type GrantRecord = JobRecord & GrantedLeaseRecord & { message_id: string | null };

export function toGrant(record: GrantRecord, remainingMs?: number, waitMs: number | null = null): Grant {
  const job = toJob(record);
  const lease = activeLeaseOf(record, job);
  return {
    kind: 'granted',
    lease,
    heartbeatWithinMs: Math.max(0, Math.floor(remainingMs ?? lease.expiresAtMs - lease.grantedAtMs)),
    token: record.lease_token,
    job,
    messageId: record.message_id,
    waitMs,
  };
}

/** A replayed grant, and the remaining time of its lease. */
type ReplayRecord = GrantRecord & { remaining_ms: number };

// Rows are found by key first (`offset 0`), and only then is their state checked, whatever the planner
// prefers.
const readGrants = <const Name extends string>(name: Name, key: string) =>
  preparedStatement(
    [name],
    `
select ${jobColumns('job')}, ${liveColumns('live')}, ${grantedLeaseColumns('live')},
  message.message_id, live.request_id, live.holder,
  date_part('epoch', live.expires_at - clock_timestamp()) * 1000 as remaining_ms
from (select * from live_jobs where ${key} offset 0) live
cross join ${lateralByKey('jobs', 'job_id', 'live.job_id')} job
left join ${lateralByKey('stream_messages', 'job_id', 'live.job_id')} message
  on message.attempt = live.attempts
where live.state = any ('{${leasedStates.map(stateNumber).join(',')}}'::smallint[])
  and live.expires_at > clock_timestamp()`,
  );

const byRequest = readGrants('requestIds', 'request_id = any (@requestIds::text[])');
const byJob = readGrants('jobIds', 'job_id = any (@jobIds::uuid[])');

/**
 * The grants that these requests received before and still hold, with their holders. Locks the requests until
 * the transaction ends.
 */
export async function findGrantsByRequest(
  sql: Sql,
  requestIds: readonly string[],
  signal?: AbortSignal,
): Promise<{ requestId: string; holder: Holder; grant: Grant }[]> {
  await lockRequests(sql, requestIds, signal);
  type Row = ReplayRecord & { request_id: string; holder: Holder };
  const rows = await byRequest.query<Row>(sql, { requestIds: textArray(requestIds) }, signal);
  return rows.map((row) => ({
    requestId: row.request_id,
    holder: row.holder,
    grant: toGrant(row, row.remaining_ms),
  }));
}

/** The active leases of these jobs, as they were granted. */
export async function findGrantsByJob(sql: Sql, jobIds: readonly string[]): Promise<Map<string, Grant>> {
  const rows = await byJob.query<ReplayRecord>(sql, { jobIds: uuidArray(jobIds) });
  return new Map(rows.map((row) => [row.job_id, toGrant(row, row.remaining_ms)]));
}

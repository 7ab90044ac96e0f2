import type { FinalStatus, JsonObject } from '../../domain/job.ts';
import type { LeaseState } from '../../domain/lease.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { uuidArray } from './arrays.ts';
import { leaseStateNumber, statusNumber } from './lease-record.ts';

/** How the lease in a locked row ends. The row itself has yet to be changed. */
export interface LeaseEnding {
  jobId: string;
  state: Exclude<LeaseState, 'ACTIVE'>;
  status: FinalStatus | null;
  requeued: boolean;
  deadLettered: boolean;
  error: string | null;
  errorDetail: JsonObject | null;
}

const end = hot(`
insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state, granted_at,
  last_heartbeat_at, expires_at, ended_at, release_status, requeued, dead_lettered, error_text, error_detail)
select live.lease_id, live.job_id, live.attempts, live.claimed_by, live.cost_units, live.lease_ttl_s, live.fence,
  live.lease_token, ending.state, live.started_at, live.last_heartbeat_at, live.expires_at, clock_timestamp(),
  ending.status, ending.requeued, ending.dead_lettered, ending.error, nullif(ending.error_detail, 'null')
from jsonb_to_recordset($1::jsonb) as ending (job_id uuid, state smallint, status smallint, requeued boolean,
  dead_lettered boolean, error text, error_detail jsonb)
join live_jobs live on live.job_id = ending.job_id`);

/** Writes leases that end into the history, from their rows as they still are. */
export async function endLeases(sql: Sql, endings: readonly LeaseEnding[]): Promise<void> {
  if (endings.length === 0) return;
  const rows = endings.map(({ jobId, state, status, requeued, deadLettered, error, errorDetail }) => ({
    job_id: jobId,
    state: leaseStateNumber(state),
    status: status === null ? null : statusNumber(status),
    requeued,
    dead_lettered: deadLettered,
    error,
    error_detail: errorDetail,
  }));
  await sql.query(end, [JSON.stringify(rows)]);
}

const policies = hot(`
select job_id, addon_id, stream, retry_backoff_s, is_unique from jobs where job_id = any ($1::uuid[])`);

/** What the jobs' own rows say that matters when their leases end. */
export interface JobPolicy {
  addonId: string;
  stream: string | null;
  retryBackoffS: number;
  isUnique: boolean;
}

export async function readPolicies(sql: Sql, jobIds: readonly string[]): Promise<Map<string, JobPolicy>> {
  if (jobIds.length === 0) return new Map();
  const rows = await sql.query<{
    job_id: string;
    addon_id: string;
    stream: string | null;
    retry_backoff_s: number;
    is_unique: boolean;
  }>(policies, [uuidArray(jobIds)]);
  return new Map(
    rows.map((row) => [
      row.job_id,
      {
        addonId: row.addon_id,
        stream: row.stream,
        retryBackoffS: row.retry_backoff_s,
        isUnique: row.is_unique,
      },
    ]),
  );
}

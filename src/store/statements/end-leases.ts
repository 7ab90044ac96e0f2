import type { FinalStatus, JsonObject } from '../../domain/job.ts';
import type { LeaseState } from '../../domain/lease.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { endedLeaseColumns, type LeaseRecord, leaseStateNumber, statusNumber } from './lease-record.ts';

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

/** A lease that has just ended, with its token. */
export type EndedLease = LeaseRecord & { lease_token: string };

const end = hot(`
with lease as (
  insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state, granted_at,
    last_heartbeat_at, expires_at, ended_at, release_status, requeued, dead_lettered, error_text, error_detail)
  select live.lease_id, live.job_id, live.attempts, live.claimed_by, live.cost_units, live.lease_ttl_s, live.fence,
    live.lease_token, ending.state, live.started_at, live.last_heartbeat_at, live.expires_at, clock_timestamp(),
    ending.status, ending.requeued, ending.dead_lettered, ending.error, nullif(ending.error_detail, 'null')
  from jsonb_to_recordset($1::jsonb) as ending (job_id uuid, state smallint, status smallint, requeued boolean,
    dead_lettered boolean, error text, error_detail jsonb)
  join live_jobs live on live.job_id = ending.job_id
  returning *
)
select ${endedLeaseColumns('lease')}, lease.lease_token from lease join jobs job on job.job_id = lease.job_id`);

/** Writes leases that end into the history, from their rows as they still are, and answers with them. */
export async function endLeases(sql: Sql, endings: readonly LeaseEnding[]): Promise<EndedLease[]> {
  if (endings.length === 0) return [];
  const rows = endings.map(({ jobId, state, status, requeued, deadLettered, error, errorDetail }) => ({
    job_id: jobId,
    state: leaseStateNumber(state),
    status: status === null ? null : statusNumber(status),
    requeued,
    dead_lettered: deadLettered,
    error,
    error_detail: errorDetail,
  }));
  return sql.query<EndedLease>(end, [JSON.stringify(rows)]);
}

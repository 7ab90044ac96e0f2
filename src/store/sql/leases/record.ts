import { type FinalStatus, finalStatuses, type Job, type JsonObject } from '../../../domain/jobs/job.ts';
import { type Lease, type LeaseState, leaseStates } from '../../../domain/leases/lease.ts';
import { timeMs } from '../../connection/sql.ts';

/** A lease as statements return it: from a live row while it is active, later from a row of its own. */
export interface LeaseRecord {
  lease_id: string;
  lease_job_id: string;
  lease_addon_id: string;
  worker_id: string;
  lease_cost_units: number;
  ttl_s: number;
  lease_state: number;
  granted_at: string;
  last_heartbeat_at: string;
  expires_at: string;
  fence: string;
  attempt: number;
  ended_at: string | null;
  release_status: number | null;
  lease_error: string | null;
  lease_error_detail: JsonObject | null;
  requeued: boolean;
  lease_dead_lettered: boolean;
  /** The stream of its job, if the statement selects it. */
  lease_stream?: string | null;
  /** The ids of the attempt's message, if the statement selects them and they were kept. */
  lease_message_ids?: string[] | null;
}

/** Columns of a live row, beside its job as `job`. */
export const activeLeaseColumns = (live: string) => `${live}.lease_id, ${live}.job_id as lease_job_id,
  job.addon_id as lease_addon_id, ${live}.claimed_by as worker_id, ${live}.cost_units as lease_cost_units,
  ${live}.lease_ttl_s as ttl_s, 0::smallint as lease_state, ${live}.started_at as granted_at,
  ${live}.last_heartbeat_at, ${live}.expires_at, ${live}.fence, ${live}.attempts as attempt,
  null::timestamptz as ended_at, null::smallint as release_status, null::text as lease_error,
  null::jsonb as lease_error_detail, false as requeued, false as lease_dead_lettered,
  job.stream as lease_stream, null::text[] as lease_message_ids`;

/** Columns of a live row that `activeLeaseOf` needs beside those of its job. */
export const grantedLeaseColumns = (
  live: string,
) => `${live}.lease_ttl_s as ttl_s, ${live}.started_at as granted_at,
  ${live}.last_heartbeat_at, ${live}.expires_at, ${live}.fence, ${live}.lease_token`;

/** The columns of an active lease beside its job. */
export interface GrantedLeaseRecord {
  ttl_s: number;
  granted_at: string;
  last_heartbeat_at: string;
  expires_at: string;
  fence: string;
  lease_token: string;
}

/** The active lease of a job. */
export const activeLeaseOf = (record: GrantedLeaseRecord, job: Job): Lease => ({
  leaseId: job.leaseId as string,
  jobId: job.jobId,
  addonId: job.addonId,
  workerId: job.claimedBy as string,
  costUnits: job.costUnits,
  ttlS: record.ttl_s,
  state: 'ACTIVE',
  grantedAtMs: timeMs(record.granted_at),
  lastHeartbeatAtMs: timeMs(record.last_heartbeat_at),
  expiresAtMs: timeMs(record.expires_at),
  fence: record.fence,
  attempt: job.attempts,
  endedAtMs: null,
  releaseStatus: null,
  error: null,
  errorDetail: null,
  requeued: false,
  deadLettered: false,
});

/** Columns of a lease whose job continued, beside the job as `job`. */
export const endedLeaseColumns = (lease: string) => `${lease}.lease_id, ${lease}.job_id as lease_job_id,
  job.addon_id as lease_addon_id, ${lease}.worker_id, ${lease}.cost_units as lease_cost_units, ${lease}.ttl_s,
  ${lease}.state as lease_state, ${lease}.granted_at, ${lease}.last_heartbeat_at, ${lease}.expires_at, ${lease}.fence,
  ${lease}.attempt, ${lease}.ended_at, ${lease}.release_status, ${lease}.error_text as lease_error,
  ${lease}.error_detail as lease_error_detail, ${lease}.requeued, ${lease}.dead_lettered as lease_dead_lettered,
  job.stream as lease_stream, ${lease}.message_ids as lease_message_ids`;

/** Columns of the outcome of a job that ended with its lease, beside the job as `job`. */
export const outcomeLeaseColumns = (
  outcome: string,
) => `${outcome}.lease_id, ${outcome}.job_id as lease_job_id,
  job.addon_id as lease_addon_id, ${outcome}.claimed_by as worker_id, job.cost_units as lease_cost_units, ${outcome}.ttl_s,
  ${outcome}.lease_state, ${outcome}.started_at as granted_at, ${outcome}.last_heartbeat_at, ${outcome}.expires_at,
  ${outcome}.fence, ${outcome}.attempts as attempt, ${outcome}.finished_at as ended_at, ${outcome}.release_status,
  ${outcome}.error_text as lease_error, ${outcome}.error_detail as lease_error_detail, false as requeued,
  ${outcome}.dead_stream is not null as lease_dead_lettered, job.stream as lease_stream,
  ${outcome}.message_ids as lease_message_ids`;

export const leaseStateNumber = (state: LeaseState): number => leaseStates.indexOf(state);
export const statusNumber = (status: FinalStatus): number => finalStatuses.indexOf(status);

export function toLease(record: LeaseRecord): Lease {
  const state = leaseStates[record.lease_state];
  if (!state)
    throw new Error(`the database holds a lease state this version does not know: ${record.lease_state}`);
  return {
    leaseId: record.lease_id,
    jobId: record.lease_job_id,
    addonId: record.lease_addon_id,
    workerId: record.worker_id,
    costUnits: record.lease_cost_units,
    ttlS: record.ttl_s,
    state,
    grantedAtMs: timeMs(record.granted_at),
    lastHeartbeatAtMs: timeMs(record.last_heartbeat_at),
    expiresAtMs: timeMs(record.expires_at),
    fence: record.fence,
    attempt: record.attempt,
    endedAtMs: timeMs(record.ended_at),
    releaseStatus: record.release_status === null ? null : (finalStatuses[record.release_status] ?? null),
    error: record.lease_error,
    errorDetail: record.lease_error_detail,
    requeued: record.requeued,
    deadLettered: record.lease_dead_lettered,
  };
}

import type { FinalStatus, JsonObject } from '../../domain/job.ts';
import type { LeaseState } from '../../domain/lease.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { type Ending, endingRows, endParts, eventRows, type NewEvent, tellAll } from './change-jobs.ts';
import { endedLeaseColumns, type LeaseRecord, leaseStateNumber, statusNumber } from './lease-record.ts';
import { type LaneTally, tallyAll, tallyRows } from './stat-tallies.ts';

/** How the lease in a locked row ends. */
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

// One statement, because each is a journey to the database and back, and all who deal wait for the capacity meanwhile.
// All rows but the capacity's are locked already, so that it does not matter which part comes first.
const ending = (answer: string) =>
  hot(`
with lease as (
  insert into leases (lease_id, job_id, attempt, worker_id, cost_units, ttl_s, fence, lease_token, state, granted_at,
    last_heartbeat_at, expires_at, ended_at, release_status, requeued, dead_lettered, error_text, error_detail)
  select live.lease_id, live.job_id, live.attempts, live.claimed_by, live.cost_units, live.lease_ttl_s, live.fence,
    live.lease_token, ending.state, live.started_at, live.last_heartbeat_at, live.expires_at, to_timestamp($6::float8 / 1000),
    ending.status, ending.requeued, ending.dead_lettered, ending.error, nullif(ending.error_detail, 'null')
  from jsonb_to_recordset($1::jsonb) as ending (job_id uuid, state smallint, status smallint, requeued boolean,
    dead_lettered boolean, error text, error_detail jsonb)
  join live_jobs live on live.job_id = ending.job_id
  returning *
), ${endParts('$2')}, told as (${tellAll('$3')}
), freed as (
  update capacity set used = used - $4::bigint where capacity_id = 1 and $4::bigint <> 0
), tallied as (${tallyAll('$5')}
)
${answer}`);

const end = ending(
  `select ${endedLeaseColumns('lease')}, lease.lease_token from lease join jobs job on job.job_id = lease.job_id`,
);
/** Where nobody wants to be told of them, they need not be read and sent again. */
const endUntold = ending('select 1 where false');

/** Leases that end, with the jobs that end with them, what there is to tell, and the units that come free. */
export interface LeaseEndings {
  leases: readonly LeaseEnding[];
  jobs: readonly Ending[];
  events: readonly NewEvent[];
  units: number;
  tallies: Iterable<LaneTally>;
  /** When they end, by the database's clock. */
  nowMs: number;
}

/**
 * Writes leases that end into the history, from their rows as they still are, and answers with them. Jobs that go on
 * have yet to be changed. Locks the capacity, unless no units are named. Answers with nothing where that is not `wanted`.
 */
export async function endLeases(
  sql: Sql,
  { leases, jobs, events, units, tallies, nowMs }: LeaseEndings,
  wanted = true,
): Promise<EndedLease[]> {
  if (leases.length === 0) return [];
  const rows = leases.map(({ jobId, state, status, requeued, deadLettered, error, errorDetail }) => ({
    job_id: jobId,
    state: leaseStateNumber(state),
    status: status === null ? null : statusNumber(status),
    requeued,
    dead_lettered: deadLettered,
    error,
    error_detail: errorDetail,
  }));
  return sql.query<EndedLease>(wanted ? end : endUntold, [
    JSON.stringify(rows),
    endingRows(jobs),
    eventRows(events),
    units,
    tallyRows(tallies),
    nowMs,
  ]);
}

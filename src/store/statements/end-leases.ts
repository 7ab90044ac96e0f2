import type { FinalStatus, JsonObject } from '../../domain/job.ts';
import type { LeaseState } from '../../domain/lease.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import {
  type Ending,
  endCounts,
  endingRows,
  endParts,
  eventRows,
  type NewEvent,
  tellAll,
} from './change-jobs.ts';
import { endedLeaseColumns, type LeaseRecord, leaseStateNumber, statusNumber } from './lease-record.ts';
import { slotOf, tally } from './stat-tallies.ts';

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
// Rows that go are still there for the part that counts: all parts see what there was before.
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
), ${endParts('$2')}, told as (${tellAll('$3')}
), freed as (
  update capacity set used = used - $4::bigint where capacity_id = 1 and $4::bigint <> 0
), tallied as (${tally(
  `(
    select lease.ended_at, live.lane_id, lease.cost_units, lease.state as end_state,
      ${slotOf('lease.ended_at - lease.granted_at')} as run, null as final_state
    from lease join live_jobs live on live.job_id = lease.job_id
    union all
    select null, lane_id, 0, null, null, final_state from gone
  ) ended`,
  'ended_at',
  {
    running: '-count(end_state)',
    used: '-sum(cost_units)',
    expired: `count(*) filter (where end_state = ${leaseStateNumber('EXPIRED')})`,
    runs: 'array_agg(run) filter (where run is not null)',
    ...endCounts,
  },
)}
)
select ${endedLeaseColumns('lease')}, lease.lease_token from lease join jobs job on job.job_id = lease.job_id`);

/** Leases that end, with the jobs that end with them, what there is to tell, and the units that come free. */
export interface LeaseEndings {
  leases: readonly LeaseEnding[];
  jobs: readonly Ending[];
  events: readonly NewEvent[];
  units: number;
}

/**
 * Writes leases that end into the history, from their rows as they still are, and answers with them. Jobs that go on
 * have yet to be changed. Locks the capacity, unless no units are named.
 */
export async function endLeases(
  sql: Sql,
  { leases, jobs, events, units }: LeaseEndings,
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
  return sql.query<EndedLease>(end, [JSON.stringify(rows), endingRows(jobs), eventRows(events), units]);
}

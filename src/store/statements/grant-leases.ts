import type { Candidate } from '../../domain/leases.ts';
import { eventNumber, leasedStates, type State, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { numberArray, textArray, uuidArray } from './arrays.ts';
import {
  type ClaimFilter,
  type HeadCounts,
  headCounts,
  headParams,
  nextSpare,
  noteLanes,
  onHeads,
  spareHeads,
} from './heads.ts';
import { type JobRecord, jobColumns, liveColumns } from './job-record.ts';
import { type GrantedLeaseRecord, grantedLeaseColumns } from './lease-record.ts';
import { lockRequests } from './lock-requests.ts';
import { slotOf, tally } from './stat-tallies.ts';

const lockHeads = onHeads((lockedHeads) =>
  hot(`
with ${lockedHeads}
select counts.*, locked.job_id, locked.cost_units, locked.is_unique, locked.bytes
from ${headCounts} left join locked on locked.free
order by locked.turn, locked.priority, locked.seq`),
);

interface HeadRow extends HeadCounts {
  job_id: string | null;
  cost_units: number;
  is_unique: boolean;
  bytes: number;
}

/** A job at the head of the queue, locked, and the size of what its worker is to be sent. */
export interface LockedCandidate extends Candidate {
  bytes: number;
}

/** Locks the next jobs that suit, in their order, as many as there are up to `wanted`. */
export async function lockCandidates(
  sql: Sql,
  filter: ClaimFilter,
  wanted: number,
  unique: boolean,
  signal?: AbortSignal,
): Promise<LockedCandidate[]> {
  let spare: number | undefined = spareHeads;
  for (;;) {
    const params = headParams(filter, wanted, wanted + spare, unique);
    const rows: HeadRow[] = await sql.query<HeadRow>(lockHeads(filter), params, signal);
    const candidates = rows.flatMap(({ job_id, cost_units, is_unique, bytes }) =>
      job_id === null ? [] : { jobId: job_id, costUnits: cost_units, isUnique: is_unique, bytes },
    );
    const counts = rows[0] ?? { lanes: 0, heads: 0, locked: 0, free: 0 };
    noteLanes(filter, counts.lanes);
    spare = nextSpare(counts, wanted, spare);
    // Whoever looks again locks the same rows again, which costs nothing, and others beside them.
    if (candidates.length === wanted || spare === undefined) return candidates;
  }
}

const peek = onHeads((lockedHeads) =>
  hot(
    `with ${lockedHeads} select exists (select from head) as found, (select count(*)::int from lane) as lanes`,
  ),
);

/** Whether there is any job that suits. Locks nothing: what is not referred to is not run. */
export async function anyCandidate(sql: Sql, filter: ClaimFilter, signal?: AbortSignal): Promise<boolean> {
  type Row = { found: boolean; lanes: number };
  const [row] = await sql.query<Row>(peek(filter), headParams(filter, 1, 1), signal);
  if (!row) throw new Error('the database did not say whether there is any');
  noteLanes(filter, row.lanes);
  return row.found;
}

// Each worker is looked for by name: joined, the planner may begin with all that is leased.
const findHolders = hot(`
select worker_id from unnest($1::text[]) as worker_id
cross join lateral (
  select from live_jobs live
  where live.claimed_by = worker_id
    and live.state = any ('{${leasedStates.map(stateNumber).join(',')}}'::smallint[])
    and live.state <> ${stateNumber('QUEUED')} and live.expires_at > clock_timestamp()
  limit 1
) held`);

/** Which of these workers hold an active lease. */
export async function holdersAmong(sql: Sql, workerIds: readonly string[]): Promise<Set<string>> {
  const rows = await sql.query<{ worker_id: string }>(findHolders, [textArray([...new Set(workerIds)])]);
  return new Set(rows.map(({ worker_id }) => worker_id));
}

/** A lease to be written into a locked row. */
export interface NewLease {
  jobId: string;
  leaseId: string;
  token: string;
  workerId: string;
  requestId: string | null;
  /** LEASED until the first heartbeat, or RUNNING at once. */
  state: State;
  ttlS: number;
  /** It is on its way, and comes back if its worker is not heard in so many seconds. */
  deliveryS: number | null;
}

/** A job with the lease it has just been given. `message_id` is null where the job has no stream, or where its message has no name yet. */
export type GrantRecord = JobRecord & GrantedLeaseRecord & { message_id: string | null };

const grantColumns = `${jobColumns('job')}, ${liveColumns('live')}, ${grantedLeaseColumns('live')}, message.message_id`;

// The fence comes from one sequence, after the row is locked, so that of two leases of a job the later has the higher.
const grant = hot(`
with clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now
), wanted as (
  select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::int[],
    $10::int[]) as wanted (job_id, lease_id, lease_token, worker_id, request_id, state, ttl_s, delivery_s)
), timed as materialized (
  select wanted.*, now, now + job.max_runtime_s * interval '1 s' as ends_at,
    now + least(wanted.ttl_s + $8::int, wanted.delivery_s, job.max_runtime_s) * interval '1 s' as expires_at
  from clock, wanted join jobs job on job.job_id = wanted.job_id
), granted as (
  update live_jobs live set state = timed.state, claimed_by = timed.worker_id, request_id = timed.request_id,
    claim_expires_at = case when timed.delivery_s is not null then timed.expires_at end,
    claims_lost = case when timed.delivery_s is null then 0 else live.claims_lost end, lease_id = timed.lease_id, lease_token = timed.lease_token,
    fence = nextval('lease_fence'), lease_ttl_s = timed.ttl_s, lease_grace_s = $8::int, started_at = now, last_heartbeat_at = now,
    expires_at = timed.expires_at, lease_ends_at = timed.ends_at, check_at = timed.expires_at,
    attempts = live.attempts + 1, progress = null, updated_at = now
  from timed where live.job_id = timed.job_id
  returning live.*
), told as (
  insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, data)
  select updated_at, job_id, lease_id, ${eventNumber('LEASE_GRANTED')}, $9::smallint, state, claimed_by,
    jsonb_build_object('worker_id', claimed_by, 'attempt', attempts, 'fence', fence, 'ttl_sec', lease_ttl_s,
      'expires_at', to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
  from granted
), taken as (
  update capacity set used = used + (select sum(cost_units) from granted)
  where capacity_id = 1 and exists (select from granted)
), tallied as (${tally('granted', 'updated_at', {
  queued: `case when $9::smallint = ${stateNumber('QUEUED')} then -count(*) else 0 end`,
  claimed: `case when $9::smallint = ${stateNumber('QUEUED')} then 0 else -count(*) end`,
  reserved: `case when $9::smallint = ${stateNumber('QUEUED')} then 0 else -sum(cost_units) end`,
  running: 'count(*)',
  used: 'sum(cost_units)',
  granted: 'count(*)',
  waits: `array_agg(${slotOf('started_at - ready_at')}) filter (where ready_at is not null)`,
})}
)
select ${grantColumns} from granted live join jobs job on job.job_id = live.job_id
left join stream_messages message on message.job_id = live.job_id and message.attempt = live.attempts`);

/** Writes leases into locked rows that came from one state, and takes their units of the locked capacity. */
export async function grantLeases(
  sql: Sql,
  leases: readonly NewLease[],
  from: State,
  graceS: number,
): Promise<Map<string, GrantRecord>> {
  if (leases.length === 0) return new Map();
  const rows = await sql.query<GrantRecord>(grant, [
    uuidArray(leases.map(({ jobId }) => jobId)),
    uuidArray(leases.map(({ leaseId }) => leaseId)),
    uuidArray(leases.map(({ token }) => token)),
    textArray(leases.map(({ workerId }) => workerId)),
    textArray(leases.map(({ requestId }) => requestId)),
    numberArray(leases.map(({ state }) => stateNumber(state))),
    numberArray(leases.map(({ ttlS }) => ttlS)),
    graceS,
    stateNumber(from),
    numberArray(leases.map(({ deliveryS }) => deliveryS)),
  ]);
  return new Map(rows.map((row) => [row.job_id, row]));
}

// Found by key first (`offset 0`), and only then is their state looked at, whatever the planner makes of it.
const readGrants = (key: string) => `
select ${grantColumns}, live.request_id
from (select * from live_jobs where ${key} offset 0) live join jobs job on job.job_id = live.job_id
left join stream_messages message on message.job_id = live.job_id and message.attempt = live.attempts
where live.state = any ('{${leasedStates.map(stateNumber).join(',')}}'::smallint[])
  and live.expires_at > clock_timestamp()`;

const byRequest = readGrants('request_id = any ($1::text[])');
const byJob = readGrants('job_id = any ($1::uuid[])');

/** What these requests were granted before and still hold. Locks the requests until the transaction ends. */
export async function findGrantsByRequest(
  sql: Sql,
  requestIds: readonly string[],
  signal?: AbortSignal,
): Promise<(GrantRecord & { request_id: string })[]> {
  await lockRequests(sql, requestIds, signal);
  return sql.query(byRequest, [textArray(requestIds)], signal);
}

/** The active leases of these jobs, as they were granted. */
export async function findGrantsByJob(
  sql: Sql,
  jobIds: readonly string[],
): Promise<Map<string, GrantRecord>> {
  const rows = await sql.query<GrantRecord>(byJob, [uuidArray(jobIds)]);
  return new Map(rows.map((row) => [row.job_id, row]));
}

const park = hot(`
with parked as (
  update live_jobs set check_at = 'infinity', updated_at = clock_timestamp()
  where job_id = any ($1::uuid[]) returning job_id, cost_units
)
insert into job_events (at, job_id, type, from_state, to_state, actor, data)
select clock_timestamp(), job_id, ${eventNumber('JOB_UNSCHEDULABLE')}, ${stateNumber('QUEUED')},
  ${stateNumber('QUEUED')}, 'scheduler', jsonb_build_object('reason', 'the job costs more than all capacity there is',
    'cost_units', cost_units, 'total', $2::int)
from parked`);

/** Puts queued, locked jobs aside that cost more than there is, and says so in their history. */
export async function parkJobs(sql: Sql, jobIds: readonly string[], total: number): Promise<void> {
  if (jobIds.length > 0) await sql.query(park, [uuidArray(jobIds), total]);
}

const unpark = `
update live_jobs set check_at = null, updated_at = clock_timestamp()
where job_id in (
  select job_id from live_jobs
  where check_at = 'infinity' and state = ${stateNumber('QUEUED')} and cost_units <= $1
  order by job_id limit $2 for update
)
returning job_id`;

/** Puts jobs back into line that were put aside and fit again; up to `limit` of them. */
export async function unparkJobs(sql: Sql, total: number, limit: number): Promise<string[]> {
  const rows = await sql.query<{ job_id: string }>(unpark, [total, limit]);
  return rows.map(({ job_id }) => job_id);
}

import type { Grant } from '../../domain/lease.ts';
import { eventNumber, leasedStates, type State, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { numberArray, textArray, uuidArray } from './arrays.ts';
import { type JobRecord, jobColumns, liveColumns, toJob } from './job-record.ts';
import { activeLeaseOf, type GrantedLeaseRecord, grantedLeaseColumns } from './lease-record.ts';
import { lockRequests } from './lock-requests.ts';
import { slotOf, tally } from './stat-tallies.ts';

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

/** A job with its lease. `message_id` is null where the job has no stream, or where its message has no name yet. */
type GrantRecord = JobRecord & GrantedLeaseRecord & { message_id: string | null };

function toGrant(record: GrantRecord): Grant {
  const job = toJob(record);
  return {
    kind: 'granted',
    lease: activeLeaseOf(record, job),
    token: record.lease_token,
    job,
    messageId: record.message_id,
  };
}

// The fence comes from one sequence, after the row is locked, so that of two leases of a job the later has the higher. What
// whoever grants knows already is not sent back.
const grant = (keepsMessages: boolean) =>
  hot(`
with wanted as (
  select wanted.*, clock.now
  from (select date_trunc('milliseconds', clock_timestamp()) as now offset 0) clock,
    unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::int[], $10::int[])
      as wanted (job_id, lease_id, lease_token, worker_id, request_id, state, ttl_s, delivery_s)
), granted as (
  update live_jobs live set state = timed.state, claimed_by = timed.worker_id, request_id = timed.request_id,
    claim_expires_at = case when timed.delivery_s is not null then timed.until end,
    claims_lost = case when timed.delivery_s is null then 0 else live.claims_lost end, lease_id = timed.lease_id,
    lease_token = timed.lease_token, fence = nextval('lease_fence'), lease_ttl_s = timed.ttl_s, lease_grace_s = $8::int,
    started_at = now, last_heartbeat_at = now, expires_at = timed.until, lease_ends_at = timed.ends_at,
    check_at = timed.until, attempts = live.attempts + 1, progress = null, updated_at = now
  from (
    select wanted.state, wanted.worker_id, wanted.request_id, wanted.lease_id, wanted.lease_token, wanted.ttl_s,
      wanted.delivery_s, wanted.now, now + job.max_runtime_s * interval '1 s' as ends_at,
      now + least(wanted.ttl_s + $8::int, wanted.delivery_s, job.max_runtime_s) * interval '1 s' as until,
      ${jobColumns('job')}
    from wanted join jobs job on job.job_id = wanted.job_id
  ) timed
  where live.job_id = timed.job_id
  returning ${jobColumns('timed')}, live.lane_id, live.state, live.claimed_by, live.lease_id, live.lease_ttl_s,
    live.attempts, live.fence, live.started_at, live.expires_at, live.ready_at, live.cancel_requested, live.note
), told as (
  insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, attempt, fence, ttl_s, expires_at)
  select started_at, job_id, lease_id, ${eventNumber('LEASE_GRANTED')}, $9::smallint, state, claimed_by, attempts,
    fence, lease_ttl_s, expires_at
  from granted
), taken as (
  update capacity set used = used + (select sum(cost_units) from granted)
  where capacity_id = 1 and exists (select from granted)
), tallied as (${tally('granted', 'started_at', {
    queued: `case when $9::smallint = ${stateNumber('QUEUED')} then -count(*) else 0 end`,
    claimed: `case when $9::smallint = ${stateNumber('QUEUED')} then 0 else -count(*) end`,
    reserved: `case when $9::smallint = ${stateNumber('QUEUED')} then 0 else -sum(cost_units) end`,
    running: 'count(*)',
    used: 'sum(cost_units)',
    granted: 'count(*)',
    waits: `array_agg(${slotOf('started_at - ready_at')}) filter (where ready_at is not null)`,
  })}
)
select ${jobColumns('granted')}, attempts, fence, granted.started_at as granted_at, granted.expires_at,
  cancel_requested, note, ${keepsMessages ? 'message.message_id' : 'null::text as message_id'}
from granted
${
  keepsMessages
    ? 'left join stream_messages message on message.job_id = granted.job_id and message.attempt = granted.attempts'
    : ''
}`);

const grantWithMessages = grant(true);
const grantWithout = grant(false);

type KnownBefore =
  | 'state'
  | 'check_at'
  | 'claimed_by'
  | 'claim_expires_at'
  | 'lease_id'
  | 'progress'
  | 'updated_at';
type NewGrantRecord = Omit<
  GrantRecord,
  KnownBefore | 'dead_lettered' | 'ttl_s' | 'lease_token' | 'last_heartbeat_at'
>;

export interface Granting {
  /** The state of all the jobs. */
  from: State;
  graceS: number;
  /** Jobs of streams have messages, whose names are told. */
  keepsMessages: boolean;
}

/** Writes leases into locked rows, and takes their units of the locked capacity. */
export async function grantLeases(
  sql: Sql,
  leases: readonly NewLease[],
  { from, graceS, keepsMessages }: Granting,
): Promise<Map<string, Grant>> {
  if (leases.length === 0) return new Map();
  const rows = await sql.query<NewGrantRecord>(keepsMessages ? grantWithMessages : grantWithout, [
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
  const byJob = new Map(leases.map((lease) => [lease.jobId, lease]));
  return new Map(rows.map((row) => [row.job_id, newGrantOf(row, byJob.get(row.job_id) as NewLease)]));
}

const newGrantOf = (row: NewGrantRecord, lease: NewLease): Grant =>
  toGrant({
    ...row,
    state: stateNumber(lease.state),
    check_at: null,
    claimed_by: lease.workerId,
    claim_expires_at: null,
    lease_id: lease.leaseId,
    progress: null,
    updated_at: row.granted_at,
    dead_lettered: false,
    ttl_s: lease.ttlS,
    lease_token: lease.token,
    last_heartbeat_at: row.granted_at,
  });

// Found by key first (`offset 0`), and only then is their state looked at, whatever the planner makes of it.
const readGrants = (key: string) => `
select ${jobColumns('job')}, ${liveColumns('live')}, ${grantedLeaseColumns('live')}, message.message_id,
  live.request_id
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
): Promise<{ requestId: string; grant: Grant }[]> {
  await lockRequests(sql, requestIds, signal);
  type Row = GrantRecord & { request_id: string };
  const rows = await sql.query<Row>(byRequest, [textArray(requestIds)], signal);
  return rows.map((row) => ({ requestId: row.request_id, grant: toGrant(row) }));
}

/** The active leases of these jobs, as they were granted. */
export async function findGrantsByJob(sql: Sql, jobIds: readonly string[]): Promise<Map<string, Grant>> {
  const rows = await sql.query<GrantRecord>(byJob, [uuidArray(jobIds)]);
  return new Map(rows.map((row) => [row.job_id, toGrant(row)]));
}

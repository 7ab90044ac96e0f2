import type { Holder } from '../../../domain/access/holder.ts';
import { eventNumber, type State, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Grant } from '../../../domain/leases/lease.ts';
import { limits } from '../../../domain/limits.ts';
import type { ClaimFilter } from '../../../domain/queue/claim-filter.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { nullIfAllNull, numberArray, textArray, uuidArray } from '../array-params.ts';
import { jobColumns } from '../jobs/record.ts';
import { type HeadMarks, headParams, onHeads, spareHeads, type TakenFrom } from '../queue/heads.ts';
import { slotOf, tally } from '../stats/tallies.ts';
import { type GrantRecord, toGrant } from './find-grants.ts';

/** A lease to be written into a locked row. */
export interface NewLease {
  jobId: string;
  leaseId: string;
  token: string;
  workerId: string;
  holder: Holder;
  requestId: string | null;
  /** LEASED until the first heartbeat, or RUNNING at once. */
  state: State;
  ttlS: number;
  /**
   * The grant is unconfirmed, and is requeued without a heartbeat or release within this many seconds; null
   * otherwise.
   */
  deliveryS: number | null;
}

// The fence comes from one sequence, after the row is locked, so the later of two leases of a job has the
// higher one. The statement does not return values that the caller knows.

/**
 * The parts of a statement that grants `wanted`; one of them is `granted`. `from` is the number of the state
 * of all the jobs.
 */
const grantParts = (from: string): string => `granted as (
  update live_jobs live set
    state = timed.state, claimed_by = timed.worker_id, holder = timed.holder, request_id = timed.request_id,
    claim_expires_at = case when timed.delivery_s is not null then timed.until end,
    claims_lost = case when timed.delivery_s is null then 0 else live.claims_lost end,
    lease_id = timed.lease_id, lease_token = timed.lease_token, fence = nextval('lease_fence'),
    lease_ttl_s = timed.ttl_s, lease_grace_s = @graceS::int, attempts = live.attempts + 1,
    started_at = now, last_heartbeat_at = now, updated_at = now,
    expires_at = timed.until, check_at = timed.until, lease_ends_at = timed.ends_at,
    progress = null, heartbeats = null, longest_silence_ms = null, longest_silence_since = null
  from (
    select wanted.n, wanted.state, wanted.worker_id, wanted.holder, wanted.request_id, wanted.lease_id,
      wanted.lease_token, wanted.ttl_s, wanted.delivery_s, now,
      now + interval '1s' * job.max_runtime_s as ends_at,
      now + interval '1s' * least(wanted.ttl_s + @graceS::int, wanted.delivery_s, job.max_runtime_s) as until,
      ${jobColumns('job')}
    from (select date_trunc('milliseconds', clock_timestamp()) as now offset 0) clock, wanted
    cross join ${lateralByKey('jobs', 'job_id', 'wanted.job_id')} job
  ) timed
  where ${keyEquals('live.job_id', 'timed.job_id')}
  returning timed.n, ${jobColumns('timed')}, live.lane_id, live.crowd, live.state, live.claimed_by,
    live.lease_id, live.lease_ttl_s, live.attempts, live.fence, live.started_at, live.expires_at,
    live.ready_at, live.cancel_requested, live.note
), recorded as (
  insert into job_events (at, job_id, lease_id, type, from_state, to_state,
    actor, attempt, fence, ttl_s, expires_at)
  select started_at, job_id, lease_id, ${eventNumber('LEASE_GRANTED')}, ${from}::smallint, state,
    claimed_by, attempts, fence, lease_ttl_s, expires_at
  from granted
), taken as (
  update capacity set used = used + (select sum(cost_units) from granted)
  where capacity_id = 1 and exists (select from granted)
), tallied as (${tally('granted', 'started_at', {
  queued: `case when ${from}::smallint = ${stateNumber('QUEUED')} then -count(*) else 0 end`,
  claimed: `case when ${from}::smallint = ${stateNumber('QUEUED')} then 0 else -count(*) end`,
  reserved: `case when ${from}::smallint = ${stateNumber('QUEUED')} then 0 else -sum(cost_units) end`,
  running: 'count(*)',
  used: 'sum(cost_units)',
  granted: 'count(*)',
  waits: `array_agg(${slotOf('started_at - ready_at')}) filter (where ready_at is not null)`,
})}
)`;

const grantedColumns = (keepsMessages: boolean): string => `granted.n::int as n, ${jobColumns('granted')},
  granted.attempts, granted.fence, granted.started_at as granted_at, granted.expires_at,
  granted.cancel_requested, granted.note,
  round(date_part('epoch', granted.started_at - granted.ready_at) * 1000)::float8 as wait_ms,
  ${keepsMessages ? 'message.message_id' : 'null::text as message_id'}`;

const messageOf = (keepsMessages: boolean): string =>
  keepsMessages
    ? `left join ${lateralByKey('stream_messages', 'job_id', 'granted.job_id')} message
  on message.attempt = granted.attempts`
    : '';

const grant = (keepsMessages: boolean) =>
  preparedStatement(
    [
      'jobIds',
      'leaseIds',
      'tokens',
      'workerIds',
      'holders',
      'requestIds',
      'states',
      'ttls',
      'deliveries',
      'graceS',
      'from',
    ],
    `
with wanted as (
  select * from unnest(
    @jobIds::uuid[], @leaseIds::uuid[], @tokens::uuid[], @workerIds::text[], @holders::int[],
    @requestIds::text[], @states::smallint[], @ttls::int[], @deliveries::int[]
  ) with ordinality
    as wanted (job_id, lease_id, lease_token, worker_id, holder, request_id, state, ttl_s, delivery_s, n)
), ${grantParts('@from')}
select ${grantedColumns(keepsMessages)}
from granted ${messageOf(keepsMessages)}`,
  );

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
type NewGrantRecord = { n: number; wait_ms: number | null } & Omit<
  GrantRecord,
  KnownBefore | 'dead_lettered' | 'ttl_s' | 'lease_token' | 'last_heartbeat_at'
>;

export interface GrantOptions {
  /** The state of all the jobs. */
  from: State;
  graceS: number;
  /** Jobs of streams have messages, and grants contain their ids. */
  keepsMessages: boolean;
}

/** Writes leases into locked rows, and takes their units from the locked capacity. */
export async function grantLeases(
  sql: Sql,
  leases: readonly NewLease[],
  { from, graceS, keepsMessages }: GrantOptions,
): Promise<Map<string, Grant>> {
  if (leases.length === 0) return new Map();
  const rows = await (keepsMessages ? grantWithMessages : grantWithout).query<NewGrantRecord>(sql, {
    jobIds: uuidArray(leases.map(({ jobId }) => jobId)),
    leaseIds: uuidArray(leases.map(({ leaseId }) => leaseId)),
    tokens: uuidArray(leases.map(({ token }) => token)),
    workerIds: textArray(leases.map(({ workerId }) => workerId)),
    holders: nullIfAllNull(
      leases.map(({ holder }) => holder),
      numberArray,
    ),
    requestIds: textArray(leases.map(({ requestId }) => requestId)),
    states: numberArray(leases.map(({ state }) => stateNumber(state))),
    ttls: numberArray(leases.map(({ ttlS }) => ttlS)),
    deliveries: numberArray(leases.map(({ deliveryS }) => deliveryS)),
    graceS,
    from: stateNumber(from),
  });
  return new Map(rows.map((row) => [row.job_id, newGrantOf(row, leases[row.n - 1] as NewLease)]));
}

const newGrantOf = (row: NewGrantRecord, lease: LeaseSlot): Grant =>
  toGrant(
    {
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
    },
    undefined,
    row.wait_ms,
  );

/** A lease for the next job, whichever that is. */
export type LeaseSlot = Omit<NewLease, 'jobId'>;

// Grants the next jobs to the slots in their order, if all fit into the available capacity and into one
// frame, none is unique, and no other transaction took one first. Array elements are read by index, which is
// fast if all have the same size: worker names are therefore in a separate array, each once.
const grantHeads = (keepsMessages: boolean) =>
  onHeads(
    [
      'totalUnlessSet',
      'leaseIds',
      'tokens',
      'workers',
      'workerPlaces',
      'holders',
      'requestIds',
      'states',
      'ttlS',
      'deliveries',
      'graceS',
    ],
    (lockedHeads) => `
with ${lockedHeads}, sized as materialized (
  select count(*)::int as locked, count(*) filter (where free)::int as free,
    coalesce(sum(cost_units) filter (where free), 0) as units,
    coalesce(sum(bytes) filter (where free), 0) as bytes,
    coalesce(bool_or(is_unique) filter (where free), false) as has_unique
  from locked
), fast_path as materialized (
  select not has_unique and bytes <= ${limits.frameBytes} and units <= available and (
      free = @lockMax::int
      or units < available and free = locked and (select count(*) from head) < @readMax::int
    ) as is_plain
  from sized, (
    select coalesce(total, @totalUnlessSet::int)::bigint * (10 - busy_rating) / 10 - used as available
    from capacity where capacity_id = 1
  ) capacity
), wanted as (
  select next.n, next.job_id, @ttlS::int as ttl_s,
    (@leaseIds::uuid[])[next.n] as lease_id, (@tokens::uuid[])[next.n] as lease_token,
    (@workers::text[])[(@workerPlaces::int[])[next.n]] as worker_id,
    (@holders::int[])[next.n] as holder,
    (@requestIds::text[])[next.n] as request_id, (@states::smallint[])[next.n] as state,
    (@deliveries::int[])[next.n] as delivery_s
  from (
    select job_id, (row_number() over (order by turn, priority, seq))::int as n from locked where free
  ) next
  where (select is_plain from fast_path)
), ${grantParts(`${stateNumber('QUEUED')}`)}
select fast_path.is_plain, granted.lane_id, granted.crowd, ${grantedColumns(keepsMessages)}
from fast_path
left join granted on true ${messageOf(keepsMessages)}`,
  );

const grantHeadsWithMessages = grantHeads(true);
const grantHeadsWithout = grantHeads(false);

export interface GrantNextOptions {
  filter: ClaimFilter;
  ttlS: number;
  graceS: number;
  keepsMessages: boolean;
  totalUnlessSet: number;
  lowWaterMarks: HeadMarks;
}

/**
 * Grants the next suitable jobs to the slots, in the order of both. Returns 'needs decision' and changes
 * nothing if some jobs are unique, too large, or do not all fit. The caller has locked the capacity. Fewer
 * grants than slots mean that there are no more jobs, unless lanes were read from low-water marks on.
 */
export async function grantNext(
  sql: Sql,
  slots: readonly LeaseSlot[],
  { filter, ttlS, graceS, keepsMessages, totalUnlessSet, lowWaterMarks }: GrantNextOptions,
  signal?: AbortSignal,
): Promise<{ grants: (Grant | undefined)[]; isAll: boolean } | 'needs decision'> {
  const workers = [...new Set(slots.map(({ workerId }) => workerId))];
  const placeOf = new Map(workers.map((worker, i) => [worker, i + 1]));
  type Row = { is_plain: boolean } & ((NewGrantRecord & TakenFrom) | { n: null });
  const marks = lowWaterMarks.json;
  const statement = (keepsMessages ? grantHeadsWithMessages : grantHeadsWithout)(filter, marks);
  const params = {
    ...headParams(filter, slots.length, slots.length + spareHeads),
    totalUnlessSet,
    leaseIds: uuidArray(slots.map(({ leaseId }) => leaseId)),
    tokens: uuidArray(slots.map(({ token }) => token)),
    workers: textArray(workers),
    workerPlaces: numberArray(slots.map(({ workerId }) => placeOf.get(workerId) as number)),
    holders: nullIfAllNull(
      slots.map(({ holder }) => holder),
      numberArray,
    ),
    requestIds: nullIfAllNull(
      slots.map(({ requestId }) => requestId),
      textArray,
    ),
    states: numberArray(slots.map(({ state }) => stateNumber(state))),
    ttlS,
    deliveries: numberArray(slots.map(({ deliveryS }) => deliveryS)),
    graceS,
    marks,
  };
  const rows = await statement.query<Row>(sql, params, signal);
  const [first] = rows;
  if (!first) throw new Error('the row of the capacity is gone');
  if (!first.is_plain) return 'needs decision';
  const granted = rows.flatMap((row) => (row.n === null ? [] : [row]));
  lowWaterMarks.advance(granted);
  const grants = new Array<Grant | undefined>(slots.length);
  for (const row of granted) grants[row.n - 1] = newGrantOf(row, slots[row.n - 1] as LeaseSlot);
  return { grants, isAll: marks === null };
}

import type { Holder } from '../../../domain/access/holder.ts';
import { claimedStates, eventNumber, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { limits } from '../../../domain/limits.ts';
import type { ClaimFilter } from '../../../domain/queue/claim-filter.ts';
import { keyEquals, lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { booleanArray, nullIfAllNull, numberArray, textArray, uuidArray } from '../array-params.ts';
import { lockRequests } from '../lock-requests.ts';
import { activeLeaseOfWorker, type LockedCandidates, type lockCandidates } from '../queue/candidates.ts';
import {
  firstWindow,
  type HeadCounts,
  type HeadMarks,
  headCounts,
  headParams,
  nextWindow,
  onHeads,
  type ScanWindow,
  type TakenFrom,
} from '../queue/heads.ts';
import { tally } from '../stats/tallies.ts';
import { type JobRecord, jobColumns, liveColumns } from './record.ts';

/** A slot for one job: the worker that gets it, and the request. */
export interface ClaimSlot {
  workerId: string;
  holder: Holder;
  requestId: string | null;
}

// Jobs that the caller has found and locked, in place of the heads of the queue.
const given = `
head as materialized (
  select * from unnest(@jobIds::uuid[], @uniques::boolean[]) as given (job_id, is_unique)
), locked as materialized (
  select live.job_id, live.priority, live.seq, live.bytes, live.cost_units, head.is_unique, true as free
  from head cross join ${lateralByKey('live_jobs', 'job_id', 'head.job_id')} live
)`;

// A unique job is not for a worker that holds a lease. If the head of the queue has one and such a worker
// asks, nothing is claimed, and the caller claims for these workers and for the others separately.
//
// While the total capacity is 0, which is how an operator pauses all work, the maximum cost of a job replaces
// it.
const claimFrom = (lockedHeads: string): string => `
with ${lockedHeads}, capacity_limit as (
  select coalesce(nullif(coalesce(total, @totalUnlessSet::int), 0), ${limits.costUnits}) as total
  from capacity where capacity_id = 1
), lease_holder as materialized (
  select array_agg(worker_id) as workers
  from (
    select distinct worker_id from unnest(@workerIds::text[]) as slot (worker_id)
    where (select bool_or(free and is_unique) from locked)
  ) slot cross join lateral ${activeLeaseOfWorker('slot.worker_id')} held
), fitting as (
  select job_id, priority, seq, sum(bytes + ${limits.jobOverheadBytes}) over (order by priority, seq)
    as bytes_so_far,
    row_number() over (order by priority, seq) as place
  from locked, capacity_limit where free and cost_units <= total
    and (select workers from lease_holder) is null
), slot as (
  select job_id, worker_id, holder, request_id, slot, clock_timestamp() as now
  from unnest(
    (select array_agg(job_id order by priority, seq) from fitting
      where place = 1 or bytes_so_far <= ${limits.answerBytes}),
    @workerIds::text[], @holders::int[], @requestIds::text[]) with ordinality
      as slot (job_id, worker_id, holder, request_id, slot)
  where job_id is not null
), claimed as (
  update live_jobs live
  set state = ${stateNumber('CLAIMED')}, claimed_by = slot.worker_id, holder = slot.holder,
    request_id = slot.request_id,
    claim_expires_at = slot.now + @claimTtlMs::float8 * interval '1 ms',
      check_at = slot.now + @claimTtlMs::float8 * interval '1 ms',
    progress = null, note = null, updated_at = slot.now
  from slot
  where ${keyEquals('live.job_id', 'slot.job_id')}
  returning live.*, slot.slot
), recorded as (
  insert into job_events (at, job_id, type, from_state, to_state, actor, data)
  select updated_at, job_id, ${eventNumber('JOB_CLAIMED')}, ${stateNumber('QUEUED')},
    ${stateNumber('CLAIMED')},
    claimed_by, jsonb_build_object('worker_id', claimed_by, 'claim_expires_at',
      to_char(claim_expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
  from claimed
), tallied as (${tally('claimed', 'updated_at', {
  queued: '-count(*)',
  claimed: 'count(*)',
  reserved: 'sum(cost_units)',
})}
)
select counts.*, (select count(*)::int from locked, capacity_limit where free and cost_units > total)
  as large,
  (select workers from lease_holder) as holders, claimed.slot::int, claimed.lane_id, claimed.crowd,
    ${jobColumns('job')}, ${liveColumns('claimed')}
from ${headCounts}
left join (claimed cross join ${lateralByKey('jobs', 'job_id', 'claimed.job_id')} job) on true`;

const claimNames = ['workerIds', 'holders', 'requestIds', 'claimTtlMs', 'totalUnlessSet'] as const;
const claim = onHeads(claimNames, claimFrom);
const claimGiven = preparedStatement([...claimNames, 'jobIds', 'uniques'], claimFrom(given));

export interface Claims {
  records: JobRecord[];
  /** More jobs are ready, but the answer has reached its size limit. */
  full: boolean;
  /** Workers that hold leases while unique jobs are next: the caller has to serve them separately. */
  holders?: ReadonlySet<string>;
  /**
   * Where jobs that cost more than the total were found. They cannot be leased and hide other jobs, so the
   * caller sets them aside and continues from there.
   */
  tooLarge?: ScanWindow;
}

interface ClaimRow extends JobRecord, HeadCounts, TakenFrom {
  slot: number | null;
  /** Number of free jobs that cost more than the total capacity. */
  large: number;
  holders: string[] | null;
}

export interface ClaimRules {
  claimTtlMs: number;
  /** The total capacity, unless the database stores another. */
  capacityTotal: number;
  lowWaterMarks: HeadMarks;
  /** Where to begin; from the marks on if omitted. */
  window?: ScanWindow;
  /** Skips unique jobs. */
  passUnique?: boolean;
  /**
   * Finds and locks the jobs where quotas of tenants limit them. The claim then runs in a transaction that
   * has locked the capacity.
   */
  lockCandidates?: typeof lockCandidates;
}

/** Claims jobs for the slots in the order of the queue: the n-th record is for the n-th slot. */
export async function claimJobs(
  sql: Sql,
  filter: ClaimFilter,
  slots: readonly ClaimSlot[],
  rules: ClaimRules,
  signal?: AbortSignal,
): Promise<Claims> {
  const { lowWaterMarks, window, passUnique = false, lockCandidates: lock } = rules;
  const records: JobRecord[] = [];
  let look = window ?? firstWindow(lowWaterMarks);
  while (records.length < slots.length) {
    const { marks, spare }: ScanWindow = look;
    const open = slots.slice(records.length);
    const wanted = { count: open.length, unique: !passUnique, window: look };
    const found: LockedCandidates | undefined = await lock?.(sql, filter, wanted, signal);
    const params = claimParams(open, rules);
    const rows: ClaimRow[] = found
      ? await claimGiven.query<ClaimRow>(sql, { ...params, ...givenParams(found) }, signal)
      : await claim(filter, marks).query<ClaimRow>(
          sql,
          { ...params, ...headParams(filter, open.length, open.length + spare, !passUnique), marks },
          signal,
        );
    const holders = rows[0]?.holders;
    if (holders) return { records, full: false, holders: new Set(holders) };
    // If nothing was claimed, the statement still returns one row with its counts.
    const taken = rows.flatMap((row) => (row.slot === null ? [] : { ...row, slot: row.slot }));
    lowWaterMarks.advance(taken);
    records.push(...taken.sort((a, b) => a.slot - b.slot));
    const counts = rows[0] ?? { heads: 0, locked: 0, free: 0, large: 0 };
    if (taken.length < counts.free - counts.large) return { records, full: true };
    if (counts.large > 0) return { records, full: false, tooLarge: look };
    const next = found ? found.next : nextWindow(counts, open.length, look);
    if (next === undefined) break;
    look = next;
  }
  return { records, full: false };
}

const claimParams = (slots: readonly ClaimSlot[], { claimTtlMs, capacityTotal }: ClaimRules) => ({
  workerIds: textArray(slots.map((slot) => slot.workerId)),
  holders: nullIfAllNull(
    slots.map((slot) => slot.holder),
    numberArray,
  ),
  requestIds: textArray(slots.map((slot) => slot.requestId)),
  claimTtlMs,
  totalUnlessSet: capacityTotal,
});

const givenParams = ({ candidates }: LockedCandidates) => ({
  jobIds: uuidArray(candidates.map(({ jobId }) => jobId)),
  uniques: booleanArray(candidates.map(({ isUnique }) => isUnique)),
});

const findClaims = preparedStatement(
  ['requestIds', 'states'],
  `
select ${jobColumns('job')}, ${liveColumns('live')}, live.request_id, live.holder
from (select * from live_jobs where request_id = any (@requestIds::text[]) offset 0) live
cross join ${lateralByKey('jobs', 'job_id', 'live.job_id')} job
where live.state = any (@states::smallint[]) and live.claim_expires_at > clock_timestamp()
order by live.priority, live.seq`,
);

/**
 * The claims that these requests made before and still hold, with their holders. Locks the requests until the
 * transaction ends.
 */
export async function findClaimsByRequest(
  sql: Sql,
  requests: readonly Pick<ClaimSlot, 'requestId'>[],
  signal?: AbortSignal,
): Promise<(JobRecord & { request_id: string; holder: Holder })[]> {
  const ids = requests.flatMap(({ requestId }) => requestId ?? []);
  await lockRequests(sql, ids, signal);
  const states = numberArray(claimedStates.map(stateNumber));
  return findClaims.query(sql, { requestIds: textArray(ids), states }, signal);
}

import { limits } from '../../domain/limits.ts';
import { claimedStates, eventNumber, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';
import { numberArray, textArray } from './arrays.ts';
import { type JobRecord, jobColumns, liveColumns } from './job-record.ts';

/** Which jobs suit. Claims with the same filter are served by one statement. */
export interface ClaimFilter {
  addonId: string | null;
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
}

/** Room for one job: who gets it, and under which request. */
export interface ClaimSlot {
  workerId: string;
  requestId: string | null;
}

/**
 * The heads of the suitable lanes are read in order and merged; of these the first are locked, and rows that another
 * server holds are passed over. `$8` heads are read of each lane, more than there are slots, so that there are
 * others where some are taken.
 *
 * Rows are locked by key, and only then is it seen whether they are queued still: asked for both at once, the planner
 * may take the index of queued rows for the shorter way to a key, and walk all of it for each.
 */
const claim = (lanes: string) =>
  hot(`
with recursive ${lanes}, lane as materialized (
  select lane_id from candidate
  where stream = '' and ($1::text is null or addon_id = $1) and ($2::text[] is null or job_type = any ($2))
    and requires <@ $3::text[] and not heavy && $4::text[]
), head as materialized (
  select head.job_id, head.priority, head.seq
  from lane cross join lateral (
    select job_id, priority, seq from live_jobs
    where live_jobs.lane_id = lane.lane_id and state = ${stateNumber('QUEUED')} and check_at is null
      and ($5::int is null or cost_units <= $5)
    order by priority, seq
    limit $8::int
  ) head
  order by priority, seq
  limit $8::int
), locked as materialized (
  select live.job_id, live.priority, live.seq, live.bytes,
    live.state = ${stateNumber('QUEUED')} and live.check_at is null as free
  from head join live_jobs live on live.job_id = head.job_id
  order by head.priority, head.seq
  limit cardinality($6::text[])
  for update of live skip locked
), fitting as (
  select job_id, priority, seq, sum(bytes) over (order by priority, seq) - bytes as bytes_before
  from locked where free
), slot as (
  select job_id, worker_id, request_id, slot, clock_timestamp() as now
  from unnest(
    (select array_agg(job_id order by priority, seq) from fitting where bytes_before < ${limits.frameBytes}),
    $6::text[], $7::text[]) with ordinality as slot (job_id, worker_id, request_id, slot)
  where job_id is not null
), claimed as (
  update live_jobs live
  set state = ${stateNumber('CLAIMED')}, claimed_by = slot.worker_id, claim_request_id = slot.request_id,
    claim_expires_at = slot.now + $9::float8 * interval '1 ms', check_at = slot.now + $9::float8 * interval '1 ms',
    progress = null, note = null, updated_at = slot.now
  from slot
  where live.job_id = slot.job_id
  returning live.*, slot.slot
), told as (
  insert into job_events (at, job_id, type, from_state, to_state, actor, data)
  select updated_at, job_id, ${eventNumber('JOB_CLAIMED')}, ${stateNumber('QUEUED')}, ${stateNumber('CLAIMED')},
    claimed_by, jsonb_build_object('worker_id', claimed_by, 'claim_expires_at',
      to_char(claim_expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
  from claimed
)
select counts.*, claimed.slot::int, ${jobColumns('job')}, ${liveColumns('claimed')}
from (
  select (select count(*)::int from head) as heads, count(*)::int as locked, count(*) filter (where free)::int as free
  from locked
) counts
left join (claimed join jobs job on job.job_id = claimed.job_id) on true`);

/** The lanes of a submitter or of some types are found by name. */
const claimNamed = claim('candidate as (select * from lanes)');

/**
 * Whoever takes anything must not look into every lane there ever was: the lanes that have something in them are found by
 * leaping through the queue's index from one to the next.
 */
const claimAnything = claim(`present (lane_id) as (
  (select lane_id from live_jobs where state = ${stateNumber('QUEUED')} and check_at is null order by lane_id limit 1)
  union all
  select (select live_jobs.lane_id from live_jobs
    where state = ${stateNumber('QUEUED')} and check_at is null and live_jobs.lane_id > present.lane_id
    order by live_jobs.lane_id limit 1)
  from present where present.lane_id is not null
), candidate as (
  select lanes.* from present join lanes on lanes.lane_id = present.lane_id
)`);

/** How many more heads are read than are wanted: rows that other servers are about to claim. */
const spareHeads = 32;

export interface Claims {
  records: JobRecord[];
  /** There was more, but this is as much as one answer may hold. */
  full: boolean;
}

interface ClaimRow extends JobRecord {
  heads: number;
  locked: number;
  free: number;
  slot: number | null;
}

/** Claims jobs for the slots in their order, first in line first: the n-th record is for the n-th slot. */
export async function claimJobs(
  sql: Sql,
  filter: ClaimFilter,
  slots: readonly ClaimSlot[],
  claimTtlMs: number,
  signal?: AbortSignal,
): Promise<Claims> {
  const records: JobRecord[] = [];
  let spare = spareHeads;
  while (records.length < slots.length) {
    const open = slots.slice(records.length);
    const wanted = open.length + spare;
    const rows = await runClaim(sql, filter, open, wanted, claimTtlMs, signal);
    // Where nothing was claimed the statement still answers with one row, for the sake of its counts.
    const taken = rows.flatMap((row) => (row.slot === null ? [] : { ...row, slot: row.slot }));
    records.push(...taken.sort((a, b) => a.slot - b.slot));
    const { heads = 0, locked = 0, free = 0 } = rows[0] ?? {};
    if (taken.length < free) return { records, full: true };
    // The queue was read to its end, and nobody was quicker at any of it: whatever else there is, others hold.
    if (heads < wanted && free === locked) break;
    // Reading further helps only where others hold what was read. Who was merely slower tries again just as it did:
    // the longer the reading takes, the staler its head has become by the time its rows are locked.
    if (locked < open.length && heads === wanted) spare *= 4;
  }
  return { records, full: false };
}

function runClaim(
  sql: Sql,
  filter: ClaimFilter,
  slots: readonly ClaimSlot[],
  heads: number,
  claimTtlMs: number,
  signal: AbortSignal | undefined,
): Promise<ClaimRow[]> {
  const isNamed = filter.addonId !== null || filter.jobTypes !== null;
  return sql.query<ClaimRow>(
    isNamed ? claimNamed : claimAnything,
    [
      filter.addonId,
      filter.jobTypes === null ? null : textArray(filter.jobTypes),
      textArray(filter.available),
      textArray(filter.refused),
      filter.maxCostUnits,
      textArray(slots.map((slot) => slot.workerId)),
      textArray(slots.map((slot) => slot.requestId)),
      heads,
      claimTtlMs,
    ],
    signal,
  );
}

const findClaims = `
select ${jobColumns('job')}, ${liveColumns('live')}, live.claim_request_id
from live_jobs live join jobs job on job.job_id = live.job_id
where live.claim_request_id = any ($1::text[]) and live.state = any ($2::smallint[])
  and live.claim_expires_at > clock_timestamp()
order by live.priority, live.seq`;

/** What these requests have claimed before and still hold. Locks the requests until the transaction ends. */
export async function findClaimsByRequest(
  sql: Sql,
  requests: readonly ClaimSlot[],
  signal?: AbortSignal,
): Promise<(JobRecord & { claim_request_id: string })[]> {
  const ids = [...new Set(requests.flatMap(({ requestId }) => requestId ?? []))].sort();
  // The same request may be under way on another server. Locked in one order, so that nobody waits in a circle.
  await sql.query(
    'select pg_advisory_xact_lock(hashtextextended(request_id, 0)) from unnest($1::text[]) as request_id',
    [textArray(ids)],
    signal,
  );
  return sql.query(findClaims, [textArray(ids), numberArray(claimedStates.map(stateNumber))], signal);
}

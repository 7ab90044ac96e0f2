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
const claim = hot(`
with lane as materialized (
  select lane_id from lanes
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
  select live.job_id, live.priority, live.seq, live.state, live.check_at
  from head join live_jobs live on live.job_id = head.job_id
  order by head.priority, head.seq
  limit cardinality($6::text[])
  for update of live skip locked
), slot as (
  select job_id, worker_id, request_id, slot, clock_timestamp() as now
  from unnest(
    (select array_agg(job_id order by priority, seq) from locked where state = ${stateNumber('QUEUED')} and check_at is null),
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
    claimed_by, jsonb_build_object('worker_id', claimed_by, 'claim_expires_at', claim_expires_at)
  from claimed
)
select heads.count as heads, claimed.slot::int, ${jobColumns('job')}, ${liveColumns('claimed')}
from (select count(*)::int from head) heads
left join (claimed join jobs job on job.job_id = claimed.job_id) on true`);

/** How many more heads are read than are wanted: rows that other servers are about to claim. */
const spareHeads = 32;

/** Claims jobs for the slots in their order, first in line first: the answer's n-th job is for the n-th slot. */
export async function claimJobs(
  sql: Sql,
  filter: ClaimFilter,
  slots: readonly ClaimSlot[],
  claimTtlMs: number,
  signal?: AbortSignal,
): Promise<JobRecord[]> {
  const claimed: JobRecord[] = [];
  for (let spare = spareHeads; claimed.length < slots.length; spare *= 4) {
    const open = slots.slice(claimed.length);
    const heads = open.length + spare;
    const rows = await sql.query<JobRecord & { heads: number; slot: number | null }>(
      claim,
      [
        filter.addonId,
        filter.jobTypes === null ? null : textArray(filter.jobTypes),
        textArray(filter.available),
        textArray(filter.refused),
        filter.maxCostUnits,
        textArray(open.map((slot) => slot.workerId)),
        textArray(open.map((slot) => slot.requestId)),
        heads,
        claimTtlMs,
      ],
      signal,
    );
    // Where nothing was claimed the statement still answers with one row, for the sake of its count of heads.
    const taken = rows.flatMap((row) => (row.slot === null ? [] : { ...row, slot: row.slot }));
    claimed.push(...taken.sort((a, b) => a.slot - b.slot));
    // Fewer heads than asked for: the queue was read to its end, and whatever others hold is theirs.
    if ((rows[0]?.heads ?? 0) < heads) break;
  }
  return claimed;
}

const findClaims = `
select ${jobColumns('job')}, ${liveColumns('live')}, live.claim_request_id, live.claimed_by
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

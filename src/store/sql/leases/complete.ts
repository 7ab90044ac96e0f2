import type { Holder } from '../../../domain/access/holder.ts';
import type { JobWithResult, Json } from '../../../domain/jobs/job.ts';
import { eventNumber, leasedStates, stateNumber, transition } from '../../../domain/jobs/state-machine.ts';
import type { Lease } from '../../../domain/leases/lease.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import {
  columnsOf,
  firstOrOwn,
  jsonsOrNull,
  nullIfAllNull,
  numberArray,
  sendOnceIfConstant,
  textArray,
  uuidArray,
} from '../array-params.ts';
import { outcomeColumns } from '../jobs/read.ts';
import { type EndedRecord, jobColumns, toJobWithResult } from '../jobs/record.ts';
import { slotOf, tally } from '../stats/tallies.ts';
import { type CapacityNow, type CapacityRow, capacityColumns, toCapacity } from './capacity.ts';
import { insertOutcomes } from './end.ts';
import { type LeaseRecord, leaseStateNumber, outcomeLeaseColumns, statusNumber, toLease } from './record.ts';

/** A worker's release of a lease whose job succeeded. Its token is a UUID. */
export interface Completion {
  leaseId: string;
  workerId: string;
  holder: Holder;
  token: string | null;
  jobId: string | null;
  result: Json;
  metrics: Json;
  /** The stream and the attempt in the release; null if it names none. */
  stream: string | null;
  attempt: number | null;
  /** The caller wants the ended job in the answer. */
  wantsJob: boolean;
}

const complete = transition('complete');
const leased = leasedStates.map(stateNumber).join(', ');

/** All columns of a job and of the lease that it ended with. */
const endedJobs = `
  select ${outcomeLeaseColumns('outcome')}, ${jobColumns('job')}, ${outcomeColumns}
  from outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job
    where outcome.lease_id = any (@wantedLeaseIds::uuid[])`;

// One statement does everything, because each statement is a round trip in which all other grants and
// releases wait for the capacity. It locks the rows first, then reads the clock, and then checks the rows; it
// skips locked rows. It locks the capacity after all other writes, because the holder of that lock must not
// wait for a row.
const completing = (returnsJobs: boolean) =>
  preparedStatement(
    [
      'leaseIds',
      'workerIds',
      'holders',
      'tokens',
      'jobIds',
      'streams',
      'attempts',
      'results',
      'metrics',
      'moreUnits',
      'totalUnlessSet',
      ...(returnsJobs ? ['wantedLeaseIds' as const] : []),
    ],
    `
with completion as materialized (
  select * from rows from (
    unnest(@leaseIds::uuid[], @workerIds::text[], @holders::int[], @tokens::uuid[], @jobIds::uuid[],
      @streams::text[], @attempts::int[]),
    jsonb_array_elements(@results::jsonb), jsonb_array_elements(@metrics::jsonb)
  ) with ordinality
    as completion (lease_id, worker_id, holder, token, job_id, stream, attempt, result, metrics, n)
), locked as materialized (
  select completion.n, completion.result, completion.metrics, live.place, live.expires_at,
    live.state in (${leased}) and not live.cancel_requested
      and live.claimed_by = ${firstOrOwn('completion.worker_id', '@workerIds::text[]')}
      and (completion.token = live.lease_token
        or completion.token is null and (live.holder = completion.holder) is not false)
      and (completion.job_id is null or completion.job_id = live.job_id)
      and (completion.attempt is null or completion.attempt = live.attempts)
      and (completion.stream is null
        or completion.stream = (select stream from lanes where lanes.lane_id = live.lane_id)) as is_owned
  from completion cross join ${lateralByKey('live_jobs', 'lease_id', 'completion.lease_id', 'for update skip locked')} live
), clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now from (select count(*) from locked) as locked_all
), deleted as (
  delete from live_jobs live using locked, clock
  where live.ctid = locked.place and locked.is_owned and locked.expires_at > clock.now
  returning live.job_id, live.lane_id, live.cost_units, live.attempts, live.claimed_by, live.lease_id,
    live.cancel_requested, live.progress, live.note, live.started_at, live.state, live.fence,
    live.lease_token, live.lease_ttl_s, live.last_heartbeat_at, live.expires_at, live.heartbeats,
    live.longest_silence_ms, live.longest_silence_since, live.holder, locked.n, locked.result,
    locked.metrics, clock.now
), outcome as (${insertOutcomes('deleted', {
      state: `${stateNumber(complete.to)}`,
      leaseState: `${leaseStateNumber('RELEASED')}`,
      status: `${statusNumber('SUCCEEDED')}`,
      finishedAt: 'now',
      error: 'null',
      errorDetail: 'null',
      deadStream: 'null',
      messageIds: 'null',
    })}
  returning ${returnsJobs ? '*' : '1 as one'}
), recorded as (
  insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, release_status)
  select now, job_id, lease_id, ${eventNumber(complete.event)}, state, ${stateNumber(complete.to)},
    claimed_by,
    ${statusNumber('SUCCEEDED')}
  from deleted
  returning 1 as one
), tallied as (${tally('deleted', 'now', {
      running: '-count(*)',
      used: '-sum(cost_units)',
      done: 'count(*)',
      runs: `array_agg(${slotOf('now - started_at')})`,
    })}
  returning 1 as one
), units as (
  select coalesce(sum(cost_units), 0) as free from deleted
  where (select count(*) from outcome) + (select count(*) from recorded) + (select count(*) from tallied) >= 0
), freed as (
  update capacity set used = used - @moreUnits::bigint - (select free from units)
  where capacity_id = 1 and (select free from units) + @moreUnits::bigint <> 0
  returning ${capacityColumns}
), unchanged as (
  select ${capacityColumns} from capacity where capacity_id = 1 and (select free
    from units) + @moreUnits::bigint = 0
  for update
)
select found.*, (select array_agg(n)::text from deleted) as numbers, (select array_agg(job_id)::text
  from deleted) as job_ids,
  (select free::float8 from units) as units,
  (select array_agg(round(date_part('epoch', now - started_at) * 1000)::bigint)::text from deleted) as run_ms
${returnsJobs ? ', ended.*' : ''}
from (select * from freed union all select * from unchanged) found
${returnsJobs ? `left join (${endedJobs}) ended on true` : ''}`,
  );

const completeReturning = completing(true);
const completeSilently = completing(false);

/** An ended lease and its ended job. */
export interface CompletedLease {
  lease: Lease;
  found: JobWithResult;
}

export interface Completed {
  /** The ended jobs, by the index of their completion. Missing completions need the general path. */
  jobIds: ReadonlyMap<number, string>;
  /** Units that became free. */
  units: number;
  /** How long the leases of these jobs lasted. */
  runMs: readonly number[];
  /** The locked capacity, with these units returned. */
  capacity: CapacityNow;
  /** Details by lease id, for completions that want them. */
  details: ReadonlyMap<string, CompletedLease>;
}

/**
 * Ends the jobs whose worker still holds their lease, and no others: completions that need a decision change
 * nothing. Then locks the capacity, and returns the freed units and `moreUnits` to it.
 */
export async function completeLeases(
  sql: Sql,
  completions: readonly Completion[],
  { totalUnlessSet, moreUnits }: { totalUnlessSet: number; moreUnits: number },
  signal?: AbortSignal,
): Promise<Completed> {
  type Own = CapacityRow & {
    numbers: string | null;
    job_ids: string | null;
    units: number;
    run_ms: string | null;
  };
  type Row = Own & (({ lease_job_id: string } & LeaseRecord & EndedRecord) | { lease_job_id?: null });
  const ofEach = columnsOf(completions);
  const wanted = completions.flatMap(({ leaseId, wantsJob }) => (wantsJob ? leaseId : []));
  const statement = wanted.length > 0 ? completeReturning : completeSilently;
  const params = {
    leaseIds: uuidArray(ofEach('leaseId')),
    workerIds: sendOnceIfConstant(ofEach('workerId'), textArray),
    holders: nullIfAllNull(ofEach('holder'), numberArray),
    tokens: nullIfAllNull(ofEach('token'), textArray),
    jobIds: nullIfAllNull(ofEach('jobId'), textArray),
    streams: nullIfAllNull(ofEach('stream'), textArray),
    attempts: nullIfAllNull(ofEach('attempt'), numberArray),
    results: jsonsOrNull(ofEach('result')),
    metrics: jsonsOrNull(ofEach('metrics')),
    moreUnits,
    totalUnlessSet,
    wantedLeaseIds: uuidArray(wanted),
  };
  const rows = await statement.query<Row>(sql, params, signal);
  const capacity = toCapacity(rows);
  const row = rows[0] as Row;
  const jobIds = elements(row.job_ids);
  const details = new Map<string, CompletedLease>();
  for (const one of rows)
    if (one.lease_job_id) details.set(one.lease_id, { lease: toLease(one), found: toJobWithResult(one) });
  return {
    jobIds: new Map(elements(row.numbers).map((n, i) => [Number(n) - 1, jobIds[i] as string])),
    units: row.units,
    runMs: elements(row.run_ms).map(Number),
    capacity,
    details,
  };
}

/** `{a,b}` as a list. */
const elements = (text: string | null): string[] => (text === null ? [] : text.slice(1, -1).split(','));

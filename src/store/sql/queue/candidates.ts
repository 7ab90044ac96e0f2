import { eventNumber, leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Candidate } from '../../../domain/leases/lease-policy.ts';
import type { ClaimFilter } from '../../../domain/queue/claim-filter.ts';
import type { Sql } from '../../connection/sql.ts';
import { preparedStatement, statement } from '../../connection/statement.ts';
import { textArray, uuidArray } from '../array-params.ts';
import {
  type HeadCounts,
  type HeadMarks,
  headCounts,
  headParams,
  nextWindow,
  onHeads,
  type ScanWindow,
} from './heads.ts';

const lockHeads = onHeads(
  [],
  (lockedHeads) => `
with ${lockedHeads}
select counts.*, locked.job_id, locked.cost_units, locked.is_unique, locked.bytes
from ${headCounts} left join locked on locked.free
order by locked.turn, locked.priority, locked.seq`,
);

interface HeadRow extends HeadCounts {
  job_id: string | null;
  cost_units: number;
  is_unique: boolean;
  bytes: number;
}

/** A locked job at the head of the queue, and the size of its answer to the worker. */
export interface LockedCandidate extends Candidate {
  bytes: number;
}

export interface Wanted {
  /** Maximum number of jobs. */
  count: number;
  /** Whether to include unique jobs. */
  unique: boolean;
  window: ScanWindow;
}

export interface LockedCandidates {
  candidates: LockedCandidate[];
  /**
   * The window of another read, if this one found too few although more jobs may be ready. Other transactions
   * had locked or taken the heads, or the read began at a mark.
   */
  next: ScanWindow | undefined;
}

/** Locks the next suitable jobs, in their order. Rows that other transactions have locked are skipped. */
export async function lockCandidates(
  sql: Sql,
  filter: ClaimFilter,
  { count, unique, window }: Wanted,
  signal?: AbortSignal,
): Promise<LockedCandidates> {
  const { marks, spare } = window;
  const params = { ...headParams(filter, count, count + spare, unique), marks };
  const rows: HeadRow[] = await lockHeads(filter, marks).query<HeadRow>(sql, params, signal);
  const candidates = rows.flatMap(({ job_id, cost_units, is_unique, bytes }) =>
    job_id === null ? [] : { jobId: job_id, costUnits: cost_units, isUnique: is_unique, bytes },
  );
  const counts = rows[0] ?? { heads: 0, locked: 0, free: 0 };
  const next = candidates.length === count ? undefined : nextWindow(counts, count, window);
  return { candidates, next };
}

const existsStatement = onHeads(
  [],
  (lockedHeads) => `with ${lockedHeads} select exists (select from head) as found`,
);

/** Whether there is a suitable job. Locks nothing: PostgreSQL does not run a part that is not referenced. */
export async function anyCandidate(
  sql: Sql,
  filter: ClaimFilter,
  { json: marks }: HeadMarks,
  signal?: AbortSignal,
): Promise<boolean> {
  const look = async (from: string | null): Promise<boolean> => {
    const params = { ...headParams(filter, 1, 1), marks: from };
    const [row] = await existsStatement(filter, from).query<{ found: boolean }>(sql, params, signal);
    if (!row) throw new Error('the database did not say whether there is any');
    return row.found;
  };
  return (marks !== null && (await look(marks))) || look(null);
}

/**
 * One row if this worker holds an active lease. Each worker is looked up by its name: with a join, the
 * planner may begin with all leased rows.
 */
export const activeLeaseOfWorker = (workerId: string): string => `(
  select from live_jobs live
  where live.claimed_by = ${workerId}
    and live.state = any ('{${leasedStates.map(stateNumber).join(',')}}'::smallint[])
    and live.state <> ${stateNumber('QUEUED')} and live.expires_at > clock_timestamp()
  limit 1
)`;

const findHolders = preparedStatement(
  ['workerIds'],
  `
select worker_id from unnest(@workerIds::text[]) as worker_id
  cross join lateral ${activeLeaseOfWorker('worker_id')} held`,
);

/** Those of these workers that hold an active lease. */
export async function holdersAmong(sql: Sql, workerIds: readonly string[]): Promise<Set<string>> {
  const rows = await findHolders.query<{ worker_id: string }>(sql, {
    workerIds: textArray([...new Set(workerIds)]),
  });
  return new Set(rows.map(({ worker_id }) => worker_id));
}

const parkStatement = preparedStatement(
  ['jobIds', 'total'],
  `
with parked as (
  update live_jobs set check_at = 'infinity', updated_at = clock_timestamp()
  where job_id = any (@jobIds::uuid[]) returning job_id, cost_units
)
insert into job_events (at, job_id, type, from_state, to_state, actor, data)
select clock_timestamp(), job_id, ${eventNumber('JOB_UNSCHEDULABLE')}, ${stateNumber('QUEUED')},
  ${stateNumber('QUEUED')}, 'scheduler', jsonb_build_object('reason',
    'the job costs more than all capacity there is',
    'cost_units', cost_units, 'total', @total::int)
from parked`,
);

/** Parks queued, locked jobs that cost more than the total, and records that in their history. */
export async function parkJobs(sql: Sql, jobIds: readonly string[], total: number): Promise<void> {
  if (jobIds.length > 0) await parkStatement.query(sql, { jobIds: uuidArray(jobIds), total });
}

const unpark = statement(
  ['total', 'limit'],
  `
update live_jobs set check_at = null, updated_at = clock_timestamp()
where job_id in (
  select job_id from live_jobs
  where check_at = 'infinity' and state = ${stateNumber('QUEUED')} and cost_units <= @total
  order by job_id limit @limit for update
)
returning job_id`,
);

/** Requeues up to `limit` parked jobs that fit again. */
export async function unparkJobs(sql: Sql, total: number, limit: number): Promise<string[]> {
  const rows = await unpark.query<{ job_id: string }>(sql, { total, limit });
  return rows.map(({ job_id }) => job_id);
}

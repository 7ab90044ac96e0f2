import type { Capacity } from '../../domain/leases/lease.ts';
import { type Assignment, assignJobs, type Candidate } from '../../domain/leases/lease-policy.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { Sql } from '../../store/connection/sql.ts';
import {
  holdersAmong,
  type LockedCandidate,
  type LockedCandidates,
  lockCandidates,
} from '../../store/sql/queue/candidates.ts';
import { type ScanWindow, widerWindow } from '../../store/sql/queue/heads.ts';

/** Workers that request jobs of one class, and the available capacity, whose row is locked. */
export interface MatchInput {
  filter: ClaimFilter;
  workers: readonly string[];
  capacity: Capacity;
  window: ScanWindow;
  /** The next jobs, if they are locked already: as many as there are workers. */
  found?: LockedCandidates | undefined;
  /** How candidates are locked, where quotas of tenants limit them. */
  lock?: typeof lockCandidates | undefined;
}

export interface MatchResult {
  kind: 'matched';
  /** The assignment of each worker, in their order. */
  assignments: Assignment[];
  /**
   * Where the repeated call of a worker without an assignment searches. Undefined if there is no job for such
   * a worker.
   */
  next: ScanWindow | undefined;
  /** Some jobs may not go to a worker that holds a lease. */
  hasUnique: boolean;
}

/**
 * Jobs that cost more than the total capacity come first, and must be set aside before any worker is served.
 */
export interface UnschedulableFound {
  kind: 'park';
  unique: boolean;
}

/**
 * Locks the next jobs and assigns them. Callers hold the capacity lock. Candidates are therefore matched in
 * order, and a large job blocks the ones behind it instead of being skipped because its row is locked. Rows
 * that other transactions have locked are skipped, never waited for.
 */
export async function matchJobs(
  sql: Sql,
  { filter, workers, capacity, window, found: locked, lock = lockCandidates }: MatchInput,
  signal: AbortSignal | undefined,
): Promise<MatchResult | UnschedulableFound> {
  const { candidates: found, next } =
    locked ?? (await lock(sql, filter, { count: workers.length, unique: true, window }, signal));
  if (tooLarge(found, capacity.total).length > 0) return { kind: 'park', unique: true };
  const candidates = upToFrameSize(found);
  const hasUnique = candidates.some(({ isUnique }) => isUnique);
  const holders = hasUnique ? await holdersAmong(sql, workers) : new Set<string>();
  const assignments = assignJobs(candidates, workers, holders, capacity);
  const assigned = assignedJobs(assignments);
  const hidesOthers = candidates.some(({ jobId, isUnique }) => isUnique && !assigned.has(jobId));
  // Workers left over are matched again, but only if this batch granted a job; otherwise they would repeat
  // forever.
  const truncatedBySize = candidates.length < found.length && assignments.some((one) => one !== undefined);
  if (truncatedBySize || !hidesOthers || assignments.every((one) => one !== undefined))
    return { kind: 'matched', assignments, next: truncatedBySize ? window : next, hasUnique };
  return matchCommonJobs(
    sql,
    { filter, workers, capacity, window, lock },
    { assignments, candidates, next },
    signal,
  );
}

export const tooLarge = (candidates: readonly Candidate[], total: number): string[] =>
  candidates.flatMap(({ jobId, costUnits }) => (costUnits > total ? jobId : []));

const assignedJobs = (assignments: readonly Assignment[]): Set<string> =>
  new Set(assignments.flatMap((one) => (one?.kind === 'grant' ? one.jobId : [])));

/** As many jobs as may be read and sent together, and at least one. */
function upToFrameSize(candidates: readonly LockedCandidate[]): readonly LockedCandidate[] {
  let bytes = 0;
  const end = candidates.findIndex((candidate, i) => {
    bytes += candidate.bytes;
    return i > 0 && bytes > limits.frameBytes;
  });
  return end < 0 ? candidates : candidates.slice(0, end);
}

/**
 * Unique jobs may hide other jobs from workers that may not take them. Those workers are matched again, with
 * common jobs only.
 */
async function matchCommonJobs(
  sql: Sql,
  { filter, workers, capacity, window, lock = lockCandidates }: MatchInput,
  first: { assignments: Assignment[]; candidates: readonly Candidate[]; next: ScanWindow | undefined },
  signal: AbortSignal | undefined,
): Promise<MatchResult | UnschedulableFound> {
  const { assignments, candidates } = first;
  const assigned = assignedJobs(assignments);
  const units = candidates.reduce(
    (sum, { jobId, costUnits }) => (assigned.has(jobId) ? sum + costUnits : sum),
    0,
  );
  const open = workers.filter((_, i) => assignments[i] === undefined);
  const { candidates: found, next } = await lock(
    sql,
    filter,
    { count: open.length + assigned.size, unique: false, window },
    signal,
  );
  if (tooLarge(found, capacity.total).length > 0) return { kind: 'park', unique: false };
  const common = upToFrameSize(found);
  const rest = { ...capacity, used: capacity.used + units, available: capacity.available - units };
  const left = common.filter(({ jobId }) => !assigned.has(jobId));
  const more = assignJobs(left, open, new Set(), rest);
  const truncatedBySize = common.length < found.length && more.some((one) => one !== undefined);
  return {
    kind: 'matched',
    assignments: assignments.map((one) => one ?? more.shift()),
    next: truncatedBySize ? window : widerWindow(first.next, next),
    hasUnique: true,
  };
}

import { limits } from '../../domain/limits.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { shareCapacity } from '../../store/sql/leases/capacity.ts';
import { lockCandidates, parkJobs } from '../../store/sql/queue/candidates.ts';
import type { UnschedulableScan } from './grant-batch.ts';
import { tooLarge } from './match-jobs.ts';

/**
 * Jobs scanned in one transaction. Not fewer than a call may take at once: otherwise calls would find, again
 * and again, an unschedulable job that this scan never reaches.
 */
const parkMax = limits.claimJobs;

/**
 * Sets aside jobs that cost more than the total capacity, in queue order, so that no later query finds them.
 */
export async function parkUnschedulable(
  sql: Sql,
  { filter, unique, window }: UnschedulableScan,
  totalUnlessSet: number,
): Promise<void> {
  const { candidates } = await lockCandidates(sql, filter, { count: parkMax, unique, window });
  const { total } = await shareCapacity(sql, totalUnlessSet);
  await parkJobs(sql, tooLarge(candidates, total), total);
}

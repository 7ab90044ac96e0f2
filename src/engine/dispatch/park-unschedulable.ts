import { limits } from '../../domain/limits.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { shareCapacity } from '../../store/sql/leases/capacity.ts';
import { lockCandidates, parkJobs } from '../../store/sql/queue/candidates.ts';
import type { HeadMarks } from '../../store/sql/queue/heads.ts';
import type { UnschedulableScan } from './grant-batch.ts';
import { tooLarge } from './match-jobs.ts';

/**
 * So many jobs are looked at in one transaction: no fewer than anybody takes at once, or jobs that cost too much would be seen
 * by whoever takes, and not from here, for ever.
 */
const parkMax = limits.claimJobs;

/** Puts jobs aside that cost more than all there is, the first in line first, so that nobody has to look at them again. */
export async function parkUnschedulable(
  sql: Sql,
  { filter, unique, lowWaterMarks }: UnschedulableScan & { lowWaterMarks: HeadMarks },
  totalUnlessSet: number,
): Promise<void> {
  const candidates = await lockCandidates(sql, filter, { count: parkMax, unique, lowWaterMarks });
  const { total } = await shareCapacity(sql, totalUnlessSet);
  await parkJobs(sql, tooLarge(candidates, total), total);
}

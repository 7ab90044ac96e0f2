import { isOverdue } from '../../domain/jobs/claim-policy.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type LockedJob, lockLiveJobs } from '../../store/sql/jobs/lock.ts';

/**
 * Locks the live rows of these jobs whose claim or lease may be decided. A row is left out if another
 * transaction has locked it, or if it has expired while the loss from an outage is still unknown; see
 * `engine/maintenance/outage-monitor.ts`. With `wait` neither is left out: the caller has run the outage
 * monitor before.
 */
export async function lockDecidable(
  sql: Sql,
  jobIds: readonly string[],
  wait: boolean,
  signal?: AbortSignal,
): Promise<Map<string, LockedJob>> {
  const locked = await lockLiveJobs(sql, jobIds, wait, signal);
  if (!wait) for (const [jobId, job] of locked) if (!job.awake && isOverdue(job)) locked.delete(jobId);
  return locked;
}

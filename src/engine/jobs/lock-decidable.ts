import { isOverdue } from '../../domain/jobs/claim-policy.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type LockedJob, lockLiveJobs } from '../../store/sql/jobs/lock.ts';

/**
 * Locks the live rows of these jobs whose claim or lease may be judged. One that has run out while nobody knows yet what
 * an outage took of it (see `engine/maintenance/outage-monitor.ts`) is left out, like one that somebody else has; with `wait` neither is, and whoever
 * waits has asked the pulse before.
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

/** Removes from an explanation's facts the names of jobs and workers outside of the caller's scopes. */
import type { Principal } from '../../domain/access/principal.ts';
import { reachesAllJobs, reachesJob } from '../../domain/access/scopes.ts';
import type { EndingLease, ExplainFacts, JobAhead } from '../../domain/explain/facts.ts';
import type { EntitySql } from '../../store/connection/sql.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import { readLeases } from '../../store/sql/leases/read.ts';

type Named = Pick<ExplainFacts, 'place' | 'endingSoon'>;

/** The facts with their counts, units and times. A caller that reaches every job sees all names. */
export async function hideNames(sql: EntitySql, facts: Named, { kind, scopes }: Principal): Promise<Named> {
  if (kind === 'local' || reachesAllJobs(scopes)) return facts;
  const { place, endingSoon } = facts;
  const leases = await readLeases(
    sql,
    endingSoon.flatMap(({ leaseId }) => leaseId ?? []),
  );
  const jobOf = (leaseId: string | null) => leases.get(leaseId ?? '')?.lease.jobId;
  const jobIds = [
    ...endingSoon.flatMap(({ leaseId }) => jobOf(leaseId) ?? []),
    ...[place?.head, place?.laneHead].flatMap((job) => job?.jobId ?? []),
  ];
  const jobs = await readJobs(sql, [...new Set(jobIds)]);
  const isReached = (jobId: string | null | undefined) => {
    const found = jobs.get(jobId ?? '');
    return found !== undefined && reachesJob(scopes, found.job);
  };
  const ahead = (job: JobAhead | null) => job && (isReached(job.jobId) ? job : { ...job, jobId: null });
  return {
    place: place && { ...place, head: ahead(place.head), laneHead: ahead(place.laneHead) },
    endingSoon: endingSoon.map(
      (one): EndingLease => (isReached(jobOf(one.leaseId)) ? one : { ...one, leaseId: null, workerId: null }),
    ),
  };
}

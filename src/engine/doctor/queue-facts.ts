import type { QueueFacts } from '../../domain/doctor/facts.ts';
import { oldestOf } from '../../domain/doctor/queue.ts';
import type { Cause } from '../../domain/explain/facts.ts';
import { queuedCauses } from '../../domain/explain/job.ts';
import { capacityOf } from '../../domain/leases/capacity.ts';
import type { Capacity } from '../../domain/leases/lease.ts';
import { type Demand, demandFor } from '../../domain/workers/known-requests.ts';
import type { Database } from '../../store/database.ts';
import { readClock } from '../../store/sql/doctor/database-facts.ts';
import {
  readDeadLetters,
  readHeads,
  readSilentLeases,
  readTooCostly,
} from '../../store/sql/doctor/queue-facts.ts';
import { leasesEndingNext, queuePosition } from '../../store/sql/explain/facts.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import { findCapacity } from '../../store/sql/leases/capacity.ts';
import { readKnownRequests } from '../../store/sql/workers/known-requests.ts';

/**
 * The queue's part of a diagnosis. Each statement reads a bounded number of rows, however long the queue is.
 */
export async function readQueueFacts(
  database: Database,
  capacityTotal: number,
  signal: AbortSignal,
): Promise<QueueFacts> {
  const [now, { heads, headsCut }, costly, deadLetters, silent, asks] = await Promise.all([
    findCapacity(database, capacityTotal, signal),
    readHeads(database, signal),
    readTooCostly(database, signal),
    readDeadLetters(database, signal),
    readSilentLeases(database, signal),
    readKnownRequests(database, signal),
  ]);
  // Claimed jobs do not reduce the available units.
  const capacity = capacityOf({ ...now, reserved: 0 });
  const oldest = oldestOf(heads);
  const demand = oldest && asks ? demandFor(asks, oldest) : null;
  const oldestCauses = oldest
    ? await causesOf(database, { jobId: oldest.jobId, demand, capacity }, signal)
    : [];
  return { capacity, heads, headsCut, oldestCauses, asks, ...costly, deadLetters, silent };
}

/** Why a job waits; empty if a worker has taken it meanwhile. */
async function causesOf(
  database: Database,
  { jobId, demand, capacity }: { jobId: string; demand: Demand | null; capacity: Capacity },
  signal: AbortSignal,
): Promise<Cause[]> {
  const [jobs, place, endingSoon, nowMs] = await Promise.all([
    readJobs(database, [jobId], signal),
    queuePosition(database, jobId),
    leasesEndingNext(database, 1),
    readClock(database, signal),
  ]);
  const job = jobs.get(jobId)?.job;
  return job?.state === 'QUEUED' && place
    ? queuedCauses({ job, nowMs, capacity, endingSoon, demand }, place)
    : [];
}

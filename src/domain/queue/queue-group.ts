/** Waiting and running jobs, in groups of jobs that the same workers may take. */
import type { Cause } from '../explain/facts.ts';
import type { Priority } from '../jobs/job.ts';

export interface QueueGroup {
  /** Null for jobs without a stream. */
  stream: string | null;
  addonId: string;
  jobType: string;
  requires: string[];
  heavy: string[];
  isUnique: boolean;
  /** Jobs that may be leased now, counted up to `queueCounts.ready`. */
  ready: number;
  /** Jobs that wait for their start time, a backoff or a larger total. */
  delayed: number;
  claimed: number;
  running: number;
  /** When the next of the jobs that wait for a start time or a backoff becomes ready. */
  nextReadyAtMs: number | null;
  /**
   * Known workers that ask for the oldest job, and how many such jobs they would take now; null where that is
   * not known.
   */
  asking: { workers: number; slots: number } | null;
  /** The job that has been ready for longest; where none is ready, an unschedulable one. */
  oldest: OldestJob | null;
}

export interface OldestJob {
  jobId: string;
  priority: Priority;
  costUnits: number;
  readySinceMs: number;
  /** Why the job waits; null where a worker has taken it in the meantime. */
  cause: Cause | null;
}

/**
 * Up to how many jobs of a group are counted, and how many jobs that are not ready are read for all groups
 * together.
 */
export const queueCounts = { ready: 1_000, due: 10_000, parked: 1_000 } as const;
/** Workers whose requests are compared with the groups. With more workers, `asking` is null. */
export const askingWorkersMax = 1_000;

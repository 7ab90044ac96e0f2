/** What waits and what runs, in groups of jobs that the same workers may take. */
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
  /** May be leased now, counted up to `queueCounts.ready`. */
  ready: number;
  /** Wait for a time, a backoff or a larger total. */
  delayed: number;
  claimed: number;
  running: number;
  /** When the next of those that wait for a time or a backoff becomes ready. */
  nextReadyAtMs: number | null;
  /** Known workers that ask for the oldest job, and how many jobs like it they would take now; null where that is not known. */
  asking: { workers: number; slots: number } | null;
  /** The job that has been ready for longest; where none is ready, one that was put aside. */
  oldest: OldestJob | null;
}

export interface OldestJob {
  jobId: string;
  priority: Priority;
  costUnits: number;
  readySinceMs: number;
  /** Why it waits; null where it was taken meanwhile. */
  cause: Cause | null;
}

/** How far the jobs of a group are counted, and how many that are not ready are looked at for all groups together. */
export const queueCounts = { ready: 1_000, due: 10_000, parked: 1_000 } as const;
/** Workers whose asks are compared with the groups; with more of them nothing is said of who asks. */
export const askingWorkersMax = 1_000;

import type { Database } from '../../store/database.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Transport } from '../../transport/transport.ts';
import type { LowWaterMarks } from '../dispatch/low-water-marks.ts';
import type { RetryHints } from '../dispatch/retry-hints.ts';
import type { FileReaper } from '../files/file-reaper.ts';
import type { WatchLimiter } from '../jobs/watch-limiter.ts';
import type { LeaseSubscriptions } from '../leases/lease-subscriptions.ts';
import type { LeaseReaper } from '../maintenance/lease-reaper.ts';
import type { OutageMonitor } from '../maintenance/outage-monitor.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import type { KnownWorkers } from '../workers/known-workers.ts';

/** Who calls, and until when an answer is of use. */
export interface Caller {
  /** Where the call came from, for the history: a name, or the peer's address. */
  peer: string;
  /** Fires when the deadline has passed or the caller has gone. */
  signal?: AbortSignal | undefined;
}

/** What the use-cases decide by. */
export interface EngineSettings {
  leaseTtlS: number;
  heartbeatGraceS: number;
  capacityTotal: number;
  claimTtlS: number;
  maxClaims: number;
  maxAttempts: number;
  streamMaxAttempts: number;
  retentionJobsDays: number;
  retentionEventsDays: number;
  retentionSamplesDays: number;
  retentionFilesDays: number;
}

/** What every use-case works with. */
export interface EngineContext {
  database: Database;
  settings: EngineSettings;
  notifier: Notifier;
  reaper: LeaseReaper;
  fileReaper: FileReaper;
  outageMonitor: OutageMonitor;
  retryHints: RetryHints;
  lowWaterMarks: LowWaterMarks;
  leaseSubscriptions: LeaseSubscriptions;
  watchLimiter: WatchLimiter;
  workers: KnownWorkers;
  transport: Transport;
  metrics: Metrics;
}

/** Calls that may wait for one kind of batch; beyond it the server is overloaded and says so. */
export const waitingMax = 50_000;

/**
 * How a batcher waits for rows that others have locked: in small groups, so that one that stays locked holds up few.
 */
export const lockedRowBatchOptions = { sizeMax: 4, flightsMax: 4, companionWeight: 1, waitingMax } as const;

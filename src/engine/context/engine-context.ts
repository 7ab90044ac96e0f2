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

/** The caller, and how long it waits for an answer. */
export interface Caller {
  /** The origin of the call, for events: a name, or the peer's address. */
  peer: string;
  /** Fires when the deadline has passed or the caller has disconnected. */
  signal?: AbortSignal | undefined;
}

/** The settings that the use cases depend on. */
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

/** The parts that all use cases share. */
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

/** Maximum calls that wait for one kind of batch. Beyond it the server refuses calls as overloaded. */
export const waitingMax = 50_000;

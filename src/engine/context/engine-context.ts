import type { Database } from '../../store/database.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Transport } from '../../transport/transport.ts';
import type { HeadMarks } from '../dispatch/low-water-marks.ts';
import type { Prospects } from '../dispatch/retry-hints.ts';
import type { FileReaper } from '../files/file-reaper.ts';
import type { WatchLimiter } from '../jobs/watch-limiter.ts';
import type { LeaseNews } from '../leases/lease-subscriptions.ts';
import type { Reaper } from '../maintenance/lease-reaper.ts';
import type { Pulse } from '../maintenance/outage-monitor.ts';
import type { Waker } from '../wakeups/notifier.ts';
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
  waker: Waker;
  reaper: Reaper;
  fileReaper: FileReaper;
  pulse: Pulse;
  prospects: Prospects;
  headMarks: HeadMarks;
  leaseNews: LeaseNews;
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
export const heldBatches = { sizeMax: 4, flightsMax: 4, companionWeight: 1, waitingMax } as const;

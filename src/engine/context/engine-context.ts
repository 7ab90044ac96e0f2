import type { Principal } from '../../domain/access/principal.ts';
import type { Database } from '../../store/database.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Transport } from '../../transport/transport.ts';
import type { LowWaterMarks } from '../dispatch/low-water-marks.ts';
import type { RetryHints } from '../dispatch/retry-hints.ts';
import type { FileReaper } from '../files/file-reaper.ts';
import type { WatchLimiter } from '../jobs/watch-limiter.ts';
import type { LeaseSubscriptions } from '../leases/lease-subscriptions.ts';
import type { OutageMonitor } from '../maintenance/outage-monitor.ts';
import type { QuotaBook } from '../quotas/quota-book.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import type { KnownWorkers } from '../workers/known-workers.ts';
import type { CommitPublisher, CommitPublisherOptions } from './commit-publisher.ts';

/** The caller, and how long it waits for an answer. */
export interface Caller {
  /** The origin of the call, for events: a name, or the peer's address. */
  peer: string;
  /** Who calls, as its credential proves. */
  principal: Principal;
  /** The RPC or the route, for the audit. */
  method?: string;
  /** The trace of the call, where calls are traced. */
  traceId?: string | undefined;
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
  rateSubmit: number;
  rateRead: number;
  rateBurstS: number;
  retentionAuditDays: number;
  authRefreshS: number;
}

/**
 * The parts that all use cases share. What must follow a commit, such as a notification, is missing from
 * their types: only the publisher may do it.
 */
export interface EngineContext {
  database: Database;
  settings: EngineSettings;
  publisher: CommitPublisher;
  notifier: Omit<Notifier, keyof CommitPublisherOptions['notifier']>;
  fileReaper: FileReaper;
  outageMonitor: OutageMonitor;
  retryHints: Omit<RetryHints, keyof CommitPublisherOptions['retryHints']>;
  lowWaterMarks: LowWaterMarks;
  leaseSubscriptions: LeaseSubscriptions;
  watchLimiter: WatchLimiter;
  workers: KnownWorkers;
  transport: Omit<Transport, keyof CommitPublisherOptions['transport']>;
  metrics: Metrics;
  quotaBook: Pick<QuotaBook, 'isEmpty' | 'of' | 'unitTenantsOf'>;
}

/** Maximum calls that wait for one kind of batch. Beyond it the server refuses calls as overloaded. */
export const waitingMax = 50_000;

import type { Log } from '../lib/log.ts';
import type { Channel } from '../store/connection/notify-channel.ts';
import type { Database } from '../store/database.ts';
import { Metrics } from '../telemetry/metrics.ts';
import type { Transport } from '../transport/transport.ts';
import { KeyService } from './access/key-service.ts';
import { CommitPublisher } from './context/commit-publisher.ts';
import type { EngineContext, EngineSettings } from './context/engine-context.ts';
import { Dispatcher } from './dispatch/dispatcher.ts';
import { LowWaterMarks } from './dispatch/low-water-marks.ts';
import { RetryHints } from './dispatch/retry-hints.ts';
import { Explainer } from './explain/explainer.ts';
import { ContentionResolver } from './files/contention-resolver.ts';
import { FileAcquirer } from './files/file-acquirer.ts';
import { FileOwnerUpdater } from './files/file-owner-updater.ts';
import { FileQueries } from './files/file-queries.ts';
import { FileReaper } from './files/file-reaper.ts';
import { OwnerHeartbeats } from './files/owner-heartbeats.ts';
import { Claimer } from './jobs/claimer.ts';
import { JobQueries } from './jobs/job-queries.ts';
import { JobUpdater } from './jobs/job-updater.ts';
import { Submitter } from './jobs/submitter.ts';
import { WatchLimiter } from './jobs/watch-limiter.ts';
import { Acquirer } from './leases/acquirer.ts';
import { CapacityService } from './leases/capacity-service.ts';
import { Heartbeats } from './leases/heartbeats.ts';
import { LeaseQueries } from './leases/lease-queries.ts';
import { LeaseRequester } from './leases/lease-requester.ts';
import { LeaseSubscriptions } from './leases/lease-subscriptions.ts';
import { Releaser } from './leases/releaser.ts';
import { DeadlineCursor } from './maintenance/deadline-cursor.ts';
import { LeaseReaper } from './maintenance/lease-reaper.ts';
import { OutageMonitor } from './maintenance/outage-monitor.ts';
import { PartitionMaintainer } from './maintenance/partition-maintainer.ts';
import { Pruner } from './maintenance/pruner.ts';
import { SchemaMonitor } from './maintenance/schema-monitor.ts';
import { LaneSweeper } from './queue/lane-sweeper.ts';
import { QueueQueries } from './queue/queue-queries.ts';
import { QuotaBook } from './quotas/quota-book.ts';
import { QuotaService } from './quotas/quota-service.ts';
import { StatsAggregator } from './stats/stats-aggregator.ts';
import { StatsQueries } from './stats/stats-queries.ts';
import { Notifier } from './wakeups/notifier.ts';
import { KnownWorkers } from './workers/known-workers.ts';
import { WorkerDirectory } from './workers/worker-directory.ts';
import { WorkerQueries } from './workers/worker-queries.ts';

export interface ServicesOptions {
  database: Database;
  channel: Channel;
  transport: Transport;
  settings: EngineSettings;
  log: Log;
  /** The metrics; by default an instance of the engine's own, which is not exported. */
  metrics?: Metrics;
  /** Callers have credentials, so quotas of tenants are in force. */
  isGuarded: boolean;
}

/**
 * All parts of the engine, connected to each other: the use cases, and the tasks that run beside them. Only
 * the facade `Engine` uses it; the layers above know the facade.
 *
 * Lifecycle: `prepare`, then `start`. `drain` ends waiting calls. `stop` finishes the running calls and ends
 * the tasks in the order of their dependencies.
 */
export class Services {
  readonly submitter: Submitter;
  readonly claimer: Claimer;
  readonly jobUpdater: JobUpdater;
  readonly leaseRequester: LeaseRequester;
  readonly dispatcher: Dispatcher;
  readonly acquirer: Acquirer;
  readonly heartbeats: Heartbeats;
  readonly releaser: Releaser;
  readonly capacity: CapacityService;
  readonly jobQueries: JobQueries;
  readonly leaseQueries: LeaseQueries;
  readonly leaseSubscriptions: LeaseSubscriptions;
  readonly lowWaterMarks: LowWaterMarks;
  readonly explainer: Explainer;
  readonly fileAcquirer: FileAcquirer;
  readonly contentionResolver: ContentionResolver;
  readonly fileOwnerUpdater: FileOwnerUpdater;
  readonly fileQueries: FileQueries;
  readonly ownerHeartbeats: OwnerHeartbeats;
  readonly reaper: LeaseReaper;
  readonly fileReaper: FileReaper;
  readonly pruner: Pruner;
  readonly laneSweeper: LaneSweeper;
  readonly partitionMaintainer: PartitionMaintainer;
  readonly statsAggregator: StatsAggregator;
  readonly statsQueries: StatsQueries;
  readonly workers: KnownWorkers;
  readonly workerDirectory: WorkerDirectory;
  readonly workerQueries: WorkerQueries;
  readonly queueQueries: QueueQueries;
  readonly outageMonitor: OutageMonitor;
  readonly schemaWatch: SchemaMonitor;
  readonly keyService: KeyService;
  readonly quotaService: QuotaService;
  readonly quotaBook: QuotaBook;
  readonly #isGuarded: boolean;
  readonly notifier: Notifier;
  readonly settings: EngineSettings;
  readonly database: Database;
  readonly transport: Transport;
  readonly metrics: Metrics;

  constructor(options: ServicesOptions) {
    const { database, channel, transport, settings, log, metrics = new Metrics() } = options;
    this.database = database;
    this.transport = transport;
    this.metrics = metrics;
    this.settings = settings;
    this.schemaWatch = new SchemaMonitor(database, log);
    this.keyService = new KeyService(database);
    this.quotaService = new QuotaService(database);
    this.quotaBook = new QuotaBook({ database, refreshMs: settings.authRefreshS * 1_000, log });
    this.#isGuarded = options.isGuarded;
    this.notifier = new Notifier(channel);
    this.leaseSubscriptions = new LeaseSubscriptions({ onSubscribe: () => this.notifier.announce() });
    const deadlineCursor = new DeadlineCursor();
    this.lowWaterMarks = new LowWaterMarks({ database, log });
    const retryHints = new RetryHints(database, deadlineCursor);
    this.outageMonitor = new OutageMonitor({ database, claimTtlMs: settings.claimTtlS * 1000, metrics, log });
    const publisher = new CommitPublisher({
      notifier: this.notifier,
      retryHints,
      transport,
      reaper: { expectIn: (ms) => this.reaper.expectIn(ms) },
      jobMeter: metrics.jobs,
    });
    this.reaper = new LeaseReaper({
      database,
      publisher,
      outageMonitor: this.outageMonitor,
      deadlineCursor,
      transport,
      leaseSubscriptions: this.leaseSubscriptions,
      maxClaims: settings.maxClaims,
      metrics,
      log,
    });
    this.fileReaper = new FileReaper({
      database,
      publisher,
      outageMonitor: this.outageMonitor,
      metrics,
      log,
    });
    this.pruner = new Pruner({
      database,
      retention: {
        jobs: settings.retentionJobsDays,
        files: settings.retentionFilesDays,
        audit: settings.retentionAuditDays,
      },
      log,
    });
    this.laneSweeper = new LaneSweeper({ database, log });
    this.partitionMaintainer = new PartitionMaintainer({ database, days: settings.retentionEventsDays, log });
    this.workers = new KnownWorkers();
    this.workerDirectory = new WorkerDirectory({ database, known: this.workers, log });
    const { notifier, fileReaper, outageMonitor, leaseSubscriptions, lowWaterMarks, workers } = this;
    const context: EngineContext = {
      database,
      settings,
      publisher,
      notifier,
      fileReaper,
      outageMonitor,
      retryHints,
      lowWaterMarks,
      leaseSubscriptions,
      watchLimiter: new WatchLimiter(),
      workers,
      transport,
      metrics,
      quotaBook: this.quotaBook,
    };
    notifier.onLeases((leaseIds) => leaseSubscriptions.publish(leaseIds));
    notifier.addListenerCount(() => leaseSubscriptions.subscriptions);
    this.submitter = new Submitter(context);
    this.claimer = new Claimer(context);
    this.jobUpdater = new JobUpdater(context);
    this.leaseRequester = new LeaseRequester(context);
    this.dispatcher = new Dispatcher(context);
    this.acquirer = new Acquirer(context, this.dispatcher);
    this.heartbeats = new Heartbeats(context);
    this.releaser = new Releaser(context, this.dispatcher);
    this.capacity = new CapacityService(context, log);
    this.jobQueries = new JobQueries(context);
    this.leaseQueries = new LeaseQueries(context);
    this.explainer = new Explainer(context);
    this.fileAcquirer = new FileAcquirer(context);
    this.contentionResolver = new ContentionResolver(context);
    this.fileOwnerUpdater = new FileOwnerUpdater(context);
    this.fileQueries = new FileQueries(context);
    this.ownerHeartbeats = new OwnerHeartbeats(context);
    this.statsQueries = new StatsQueries(context);
    this.workerQueries = new WorkerQueries(context, this.workerDirectory);
    this.queueQueries = new QueueQueries(context, this.workerDirectory);
    this.statsAggregator = new StatsAggregator({
      database,
      notifier: notifier,
      capacityTotal: settings.capacityTotal,
      retentionDays: settings.retentionSamplesDays,
      log,
    });
  }

  /** Creates the event partitions and detects an outage before the server serves calls. */
  async prepare(): Promise<void> {
    await this.schemaWatch.runOnce();
    if (this.#isGuarded) await this.quotaBook.runOnce();
    await this.partitionMaintainer.prepare();
    await this.outageMonitor.begin();
  }

  start(): void {
    this.notifier.start();
    void this.transport.start();
    this.schemaWatch.start();
    this.outageMonitor.start();
    this.reaper.start();
    this.fileReaper.start();
    this.lowWaterMarks.start();
    this.pruner.start();
    this.laneSweeper.start();
    this.partitionMaintainer.start();
    this.capacity.start();
    this.statsAggregator.start();
    this.workerDirectory.start();
    if (this.#isGuarded) this.quotaBook.start();
  }

  /** Ends all waiting calls and watches, so that a stopping server need not wait for them. */
  async drain(): Promise<void> {
    this.heartbeats.draining = true;
    this.jobQueries.stop();
    this.fileQueries.stop();
    this.statsQueries.stop();
    this.acquirer.stopWaiting();
    await this.leaseSubscriptions.drain();
  }

  async stop(): Promise<void> {
    await this.drain();
    const users = [this.submitter, this.claimer, this.jobUpdater, this.leaseRequester, this.acquirer];
    await Promise.all(
      [...users, this.heartbeats, this.jobQueries, this.leaseQueries].map((user) => user.close()),
    );
    await Promise.all(
      [this.fileAcquirer, this.fileOwnerUpdater, this.ownerHeartbeats].map((user) => user.close()),
    );
    await this.dispatcher.close();
    await this.releaser.close();
    await this.quotaBook.stop();
    await this.capacity.stop();
    await this.statsAggregator.stop();
    await this.workerDirectory.stop();
    await this.reaper.stop();
    await this.fileReaper.stop();
    await this.lowWaterMarks.stop();
    await this.pruner.stop();
    await this.laneSweeper.stop();
    await this.partitionMaintainer.stop();
    await this.outageMonitor.stop();
    await this.schemaWatch.stop();
    await this.transport.stop();
    await this.notifier.stop();
  }
}

import type { Log } from '../lib/log.ts';
import type { Channel } from '../store/connection/notify-channel.ts';
import type { Database } from '../store/database.ts';
import { Metrics } from '../telemetry/metrics.ts';
import type { Transport } from '../transport/transport.ts';
import type { EngineContext, EngineSettings } from './context/engine-context.ts';
import { Desk } from './dispatch/dispatcher.ts';
import { HeadMarks } from './dispatch/low-water-marks.ts';
import { Prospects } from './dispatch/retry-hints.ts';
import { Explainer } from './explain/explainer.ts';
import { FileInstructor } from './files/contention-resolver.ts';
import { FileGate } from './files/file-acquirer.ts';
import { FileOwnerChanger } from './files/file-owner-updater.ts';
import { FileReader } from './files/file-queries.ts';
import { FileReaper } from './files/file-reaper.ts';
import { OwnerHeartbeats } from './files/owner-heartbeats.ts';
import { Claimer } from './jobs/claimer.ts';
import { Reader } from './jobs/job-queries.ts';
import { Changer } from './jobs/job-updater.ts';
import { Submitter } from './jobs/submitter.ts';
import { WatchLimiter } from './jobs/watch-limiter.ts';
import { Acquirer } from './leases/acquirer.ts';
import { CapacityKeeper } from './leases/capacity-service.ts';
import { Heartbeats } from './leases/heartbeats.ts';
import { LeaseReader } from './leases/lease-queries.ts';
import { LeaseRequester } from './leases/lease-requester.ts';
import { LeaseNews } from './leases/lease-subscriptions.ts';
import { Releaser } from './leases/releaser.ts';
import { DueMark } from './maintenance/deadline-cursor.ts';
import { Reaper } from './maintenance/lease-reaper.ts';
import { Pulse } from './maintenance/outage-monitor.ts';
import { HistoryKeeper } from './maintenance/partition-maintainer.ts';
import { Pruner } from './maintenance/pruner.ts';
import { SchemaWatch } from './maintenance/schema-monitor.ts';
import { LaneSweeper } from './queue/lane-sweeper.ts';
import { QueueReader } from './queue/queue-queries.ts';
import { StatsFolder } from './stats/stats-aggregator.ts';
import { StatsReader } from './stats/stats-queries.ts';
import { Waker } from './wakeups/notifier.ts';
import { KnownWorkers } from './workers/known-workers.ts';
import { WorkerDirectory } from './workers/worker-directory.ts';
import { WorkerReader } from './workers/worker-queries.ts';

export interface EngineOptions {
  database: Database;
  channel: Channel;
  transport: Transport;
  settings: EngineSettings;
  log: Log;
  /** What counts; one of the engine's own, which nobody reads, where left out. */
  metrics?: Metrics;
}

/**
 * The use-cases, and the services that run beside them. The only place that decides: faces translate, the store
 * carries out. `start` begins reaping and waking; `stop` refuses new work, finishes what is under way, and leaves
 * the database open for whoever opened it.
 */
export class Engine {
  readonly submitter: Submitter;
  readonly claimer: Claimer;
  readonly changer: Changer;
  readonly leaseRequester: LeaseRequester;
  readonly desk: Desk;
  readonly acquirer: Acquirer;
  readonly heartbeats: Heartbeats;
  readonly releaser: Releaser;
  readonly capacity: CapacityKeeper;
  readonly reader: Reader;
  readonly leaseReader: LeaseReader;
  readonly leaseNews: LeaseNews;
  readonly headMarks: HeadMarks;
  readonly explainer: Explainer;
  readonly fileGate: FileGate;
  readonly fileInstructor: FileInstructor;
  readonly fileOwners: FileOwnerChanger;
  readonly fileReader: FileReader;
  readonly ownerHeartbeats: OwnerHeartbeats;
  readonly reaper: Reaper;
  readonly fileReaper: FileReaper;
  readonly pruner: Pruner;
  readonly laneSweeper: LaneSweeper;
  readonly historyKeeper: HistoryKeeper;
  readonly statsFolder: StatsFolder;
  readonly statsReader: StatsReader;
  readonly workers: KnownWorkers;
  readonly workerDirectory: WorkerDirectory;
  readonly workerReader: WorkerReader;
  readonly queueReader: QueueReader;
  readonly pulse: Pulse;
  readonly schemaWatch: SchemaWatch;
  readonly waker: Waker;
  readonly settings: EngineSettings;
  readonly database: Database;
  readonly transport: Transport;
  readonly metrics: Metrics;

  constructor(options: EngineOptions) {
    const { database, channel, transport, settings, log, metrics = new Metrics() } = options;
    this.database = database;
    this.transport = transport;
    this.metrics = metrics;
    this.settings = settings;
    this.schemaWatch = new SchemaWatch(database, log);
    this.waker = new Waker(channel);
    this.leaseNews = new LeaseNews({ onFollow: () => this.waker.announce() });
    const dueMark = new DueMark();
    this.headMarks = new HeadMarks({ database, log });
    const prospects = new Prospects(database, dueMark);
    this.pulse = new Pulse({ database, claimTtlMs: settings.claimTtlS * 1000, metrics, log });
    this.reaper = new Reaper({
      database,
      waker: this.waker,
      pulse: this.pulse,
      prospects,
      dueMark,
      transport,
      leaseNews: this.leaseNews,
      maxClaims: settings.maxClaims,
      metrics,
      log,
    });
    this.fileReaper = new FileReaper({ database, waker: this.waker, pulse: this.pulse, metrics, log });
    this.pruner = new Pruner({
      database,
      retention: {
        jobs: settings.retentionJobsDays,
        files: settings.retentionFilesDays,
      },
      log,
    });
    this.laneSweeper = new LaneSweeper({ database, log });
    this.historyKeeper = new HistoryKeeper({ database, days: settings.retentionEventsDays, log });
    this.workers = new KnownWorkers();
    this.workerDirectory = new WorkerDirectory({ database, known: this.workers, log });
    const { waker, reaper, fileReaper, pulse, leaseNews, headMarks, workers } = this;
    const context: EngineContext = {
      database,
      settings,
      waker,
      reaper,
      fileReaper,
      pulse,
      prospects,
      headMarks,
      leaseNews,
      watchLimiter: new WatchLimiter(),
      workers,
      transport,
      metrics,
    };
    waker.onLeases((leaseIds) => leaseNews.publish(leaseIds));
    waker.countWaiters(() => leaseNews.followers);
    this.submitter = new Submitter(context);
    this.claimer = new Claimer(context);
    this.changer = new Changer(context);
    this.leaseRequester = new LeaseRequester(context);
    this.desk = new Desk(context);
    this.acquirer = new Acquirer(context, this.desk);
    this.heartbeats = new Heartbeats(context);
    this.releaser = new Releaser(context, this.desk);
    this.capacity = new CapacityKeeper(context, log);
    this.reader = new Reader(context);
    this.leaseReader = new LeaseReader(context);
    this.explainer = new Explainer(context);
    this.fileGate = new FileGate(context);
    this.fileInstructor = new FileInstructor(context);
    this.fileOwners = new FileOwnerChanger(context);
    this.fileReader = new FileReader(context);
    this.ownerHeartbeats = new OwnerHeartbeats(context);
    this.statsReader = new StatsReader(context);
    this.workerReader = new WorkerReader(context, this.workerDirectory);
    this.queueReader = new QueueReader(context, this.workerDirectory);
    this.statsFolder = new StatsFolder({
      database,
      waker,
      capacityTotal: settings.capacityTotal,
      retentionDays: settings.retentionSamplesDays,
      log,
    });
  }

  /** Sees that what happens can be written, and finds out what happened while no server was alive, before anybody is served. */
  async prepare(): Promise<void> {
    await this.schemaWatch.runOnce();
    await this.historyKeeper.prepare();
    await this.pulse.begin();
  }

  start(): void {
    this.waker.start();
    void this.transport.start();
    this.schemaWatch.start();
    this.pulse.start();
    this.reaper.start();
    this.fileReaper.start();
    this.headMarks.start();
    this.pruner.start();
    this.laneSweeper.start();
    this.historyKeeper.start();
    this.capacity.start();
    this.statsFolder.start();
    this.workerDirectory.start();
  }

  /** Lets everybody go who waits or follows, so that a server that stops need not wait for them. */
  async drain(): Promise<void> {
    this.heartbeats.draining = true;
    this.reader.stop();
    this.fileReader.stop();
    this.statsReader.stop();
    this.acquirer.stopWaiting();
    await this.leaseNews.drain();
  }

  async stop(): Promise<void> {
    await this.drain();
    const users = [this.submitter, this.claimer, this.changer, this.leaseRequester, this.acquirer];
    await Promise.all([...users, this.heartbeats, this.reader, this.leaseReader].map((user) => user.close()));
    await Promise.all([this.fileGate, this.fileOwners, this.ownerHeartbeats].map((user) => user.close()));
    await this.desk.close();
    await this.releaser.close();
    await this.capacity.stop();
    await this.statsFolder.stop();
    await this.workerDirectory.stop();
    await this.reaper.stop();
    await this.fileReaper.stop();
    await this.headMarks.stop();
    await this.pruner.stop();
    await this.laneSweeper.stop();
    await this.historyKeeper.stop();
    await this.pulse.stop();
    await this.schemaWatch.stop();
    await this.transport.stop();
    await this.waker.stop();
  }
}

import { type Refusals, reported } from './access/audit/refusals.ts';
import { type Authenticator, openAuthenticator } from './access/authenticator.ts';
import { guarded } from './access/guarded-verbs.ts';
import { rateLimited } from './access/limits/rate-limited-verbs.ts';
import { RateLimiter } from './access/limits/rate-limiter.ts';
import { Services, type ServicesOptions } from './services.ts';

export interface EngineOptions extends Omit<ServicesOptions, 'isGuarded'> {
  /**
   * Where it is on, callers have credentials, which limit what they reach, how much they ask, and what their
   * tenants use. It records refused calls, too.
   */
  authenticator?: Authenticator;
}

/** The verbs of each noun. A verb is a method of the service that carries it out. */
function verbsOf(services: Services) {
  const { submitter, claimer, jobUpdater, jobQueries } = services;
  const { leaseRequester, acquirer, heartbeats, releaser, leaseQueries, leaseSubscriptions } = services;
  const { fileAcquirer, fileOwnerUpdater, fileQueries, contentionResolver, ownerHeartbeats } = services;
  const { capacity, statsQueries, queueQueries, workers, workerQueries, explainer, keyService } = services;
  const { quotaService } = services;
  return {
    jobs: {
      submit: submitter.submit.bind(submitter),
      submitMany: submitter.submitMany.bind(submitter),
      claim: claimer.claim.bind(claimer),
      updateStatus: jobUpdater.updateStatus.bind(jobUpdater),
      cancel: jobUpdater.cancel.bind(jobUpdater),
      retry: jobUpdater.retry.bind(jobUpdater),
      retryDeadLetters: jobUpdater.retryDeadLetters.bind(jobUpdater),
      get: jobQueries.get.bind(jobQueries),
      list: jobQueries.list.bind(jobQueries),
      streams: jobQueries.streams.bind(jobQueries),
      events: jobQueries.events.bind(jobQueries),
      watch: jobQueries.watch.bind(jobQueries),
      explain: explainer.explainJob.bind(explainer),
    },
    leases: {
      request: leaseRequester.request.bind(leaseRequester),
      acquire: acquirer.acquire.bind(acquirer),
      /** Grants for the credits of a work stream. */
      fetch: acquirer.fetch.bind(acquirer),
      heartbeat: heartbeats.heartbeat.bind(heartbeats),
      heartbeatWithJob: heartbeats.heartbeatWithJob.bind(heartbeats),
      heartbeatMany: heartbeats.heartbeatMany.bind(heartbeats),
      heartbeatEach: heartbeats.heartbeatEach.bind(heartbeats),
      verdictsOf: heartbeats.verdictsOf.bind(heartbeats),
      release: releaser.release.bind(releaser),
      end: releaser.end.bind(releaser),
      endEach: releaser.endEach.bind(releaser),
      get: leaseQueries.get.bind(leaseQueries),
      list: leaseQueries.list.bind(leaseQueries),
      /** The id of the lease that a token belongs to. */
      findByToken: leaseQueries.leaseOf.bind(leaseQueries),
      subscribe: leaseSubscriptions.subscribe.bind(leaseSubscriptions),
      explain: explainer.explainLease.bind(explainer),
    },
    files: {
      acquire: fileAcquirer.acquire.bind(fileAcquirer),
      release: fileOwnerUpdater.release.bind(fileOwnerUpdater),
      reportActivity: fileOwnerUpdater.activity.bind(fileOwnerUpdater),
      stopOwner: fileOwnerUpdater.stop.bind(fileOwnerUpdater),
      endOwner: fileOwnerUpdater.end.bind(fileOwnerUpdater),
      heartbeat: ownerHeartbeats.heartbeat.bind(ownerHeartbeats),
      heartbeatEach: ownerHeartbeats.heartbeatEach.bind(ownerHeartbeats),
      instruct: contentionResolver.instruct.bind(contentionResolver),
      list: fileQueries.leases.bind(fileQueries),
      blockers: fileQueries.blockers.bind(fileQueries),
      watch: fileQueries.watch.bind(fileQueries),
    },
    capacity: {
      get: capacity.get.bind(capacity),
      set: capacity.set.bind(capacity),
      changes: capacity.changes.bind(capacity),
    },
    stats: {
      snapshot: statsQueries.snapshot.bind(statsQueries),
      timeseries: statsQueries.timeseries.bind(statsQueries),
      watch: statsQueries.watch.bind(statsQueries),
    },
    keys: {
      create: keyService.create.bind(keyService),
      list: keyService.list.bind(keyService),
      get: keyService.get.bind(keyService),
      rotate: keyService.rotate.bind(keyService),
      revoke: keyService.revoke.bind(keyService),
      audit: keyService.audit.bind(keyService),
    },
    quotas: {
      set: quotaService.set.bind(quotaService),
      list: quotaService.list.bind(quotaService),
    },
    queue: {
      get: queueQueries.get.bind(queueQueries),
    },
    workers: {
      list: workerQueries.list.bind(workerQueries),
      /** Lists the stream of a worker until it closes. */
      open: workers.open.bind(workers),
    },
  };
}

export type Verbs = ReturnType<typeof verbsOf>;

/**
 * The use cases as verbs by noun: `engine.jobs.submit`, `engine.leases.acquire`. Only the engine decides: the
 * API layers translate, and the store carries out.
 *
 * Lifecycle: `prepare` before the server serves calls, then `start`. `drain` ends waiting calls and watches.
 * `stop` refuses new calls, finishes the running ones, and leaves the database open for its owner.
 */
export class Engine {
  readonly jobs: Verbs['jobs'];
  readonly leases: Verbs['leases'];
  readonly files: Verbs['files'];
  readonly capacity: Verbs['capacity'];
  readonly stats: Verbs['stats'];
  readonly keys: Verbs['keys'];
  readonly quotas: Verbs['quotas'];
  readonly queue: Verbs['queue'];
  readonly workers: Verbs['workers'];
  /** The state of this server, for its metrics. */
  readonly figures: {
    readonly waitingClaims: number;
    readonly streams: number;
    readonly listedWorkers: number;
    readonly historyDaysAhead: number | undefined;
  };
  readonly #services: Services;

  /** Records refused frames of streams. */
  readonly refusals: Refusals;

  constructor(
    services: Services,
    { authenticator = openAuthenticator }: Pick<EngineOptions, 'authenticator'> = {},
  ) {
    this.#services = services;
    const { refusals } = authenticator;
    this.refusals = refusals;
    const { jobs, leases, files, capacity, stats, keys, quotas, queue, workers } = authenticator.isOn
      ? reported(
          rateLimited(guarded(verbsOf(services), authenticator), new RateLimiter(services.settings)),
          refusals,
        )
      : verbsOf(services);
    this.jobs = jobs;
    this.leases = leases;
    this.files = files;
    this.capacity = capacity;
    this.stats = stats;
    this.keys = keys;
    this.quotas = quotas;
    this.queue = queue;
    this.workers = workers;
    this.figures = {
      get waitingClaims() {
        return services.acquirer.waiting;
      },
      get streams() {
        return services.leaseSubscriptions.subscriptions;
      },
      get listedWorkers() {
        return services.workers.size;
      },
      get historyDaysAhead() {
        return services.partitionMaintainer.daysAhead;
      },
    };
  }

  /** An engine with services of its own. */
  static create(options: EngineOptions): Engine {
    const isGuarded = options.authenticator?.isOn ?? false;
    return new Engine(new Services({ ...options, isGuarded }), options);
  }

  /** The settings that requests are completed with. */
  get settings() {
    return this.#services.settings;
  }

  /** Answers to heartbeats ask workers to finish, because the server stops. */
  get draining(): boolean {
    return this.#services.heartbeats.draining;
  }

  prepare(): Promise<void> {
    return this.#services.prepare();
  }

  start(): void {
    this.#services.start();
  }

  drain(): Promise<void> {
    return this.#services.drain();
  }

  stop(): Promise<void> {
    return this.#services.stop();
  }
}

/** Gauges that are read at each scrape: the state of the server, its database and its queue. */
import type { Engine } from '../../engine/engine.ts';
import type { Connections, Database } from '../../store/database.ts';
import type { Transport } from '../../transport/transport.ts';
import type { ProcessMetrics } from '../process-metrics.ts';
import type { Reading, Registry } from '../registry.ts';
import type { QueueState, QueueWatch } from './queue-watch.ts';

/** The readings of one scrape. */
export interface Found {
  databaseUp: boolean;
  connections: Connections;
  queue: QueueState | undefined;
}

export interface GaugesOptions {
  registry: Registry;
  engine: Engine;
  database: Database;
  transport: Transport;
  /** Returns within a second whether the database answers. */
  isUp: () => Promise<boolean>;
  queue: QueueWatch;
  process: ProcessMetrics;
}

export class ServerGauges {
  readonly #options: GaugesOptions;
  #found: Found | undefined;

  constructor(options: GaugesOptions) {
    this.#options = options;
    const { registry, transport, engine } = options;
    registry.gauge('leasehold_database_up', 'Whether the database answers.', () =>
      Number(this.#found?.databaseUp ?? false),
    );
    registry.gauge('leasehold_redis_up', 'Whether Redis answers; nothing where there is none.', () =>
      transport.state === 'none' ? undefined : Number(transport.state === 'up'),
    );
    this.#declarePool(registry);
    this.#declareQueue(registry);
    registry.gauge(
      'leasehold_waiting_claims',
      'Callers that wait for work on this server.',
      () => engine.figures.waitingClaims,
    );
    registry.gauge(
      'leasehold_heartbeat_streams',
      'Streams of heartbeats and of work that are open on this server.',
      () => engine.figures.streams,
    );
    registry.gauge(
      'leasehold_listed_workers',
      'Workers known to this server: connected, waiting, or active in the last 30 seconds.',
      () => engine.figures.listedWorkers,
    );
    registry.gauge(
      'leasehold_history_days_ahead',
      'Days for which job_events partitions exist, at the last check; an operator should act below 3.',
      () => engine.figures.historyDaysAhead,
    );
  }

  /** Returns the text of all metrics, after the readings from the database. */
  async collect(): Promise<string> {
    const { registry, database, isUp, queue, process } = this.#options;
    await process.measure();
    // Read first, so that the statements below do not count as waiting.
    const connections = await database.connections();
    const [databaseUp, state] = await Promise.all([isUp(), queue.read()]);
    this.#found = { databaseUp, connections, queue: databaseUp ? state : undefined };
    return registry.render();
  }

  #declarePool(registry: Registry): void {
    const pool = (of: (connections: Connections) => Reading) => () =>
      this.#found && of(this.#found.connections);
    registry.gauge(
      'leasehold_database_pool_connections',
      'Connections to the database, by state.',
      pool(({ open, idle }) => [
        { labels: { state: 'idle' }, value: idle },
        { labels: { state: 'busy' }, value: open - idle },
      ]),
      'state',
    );
    registry.gauge(
      'leasehold_database_pool_max_connections',
      'Connections that there may be.',
      pool(({ max }) => max),
    );
    registry.gauge(
      'leasehold_database_pool_waiting',
      'Statements and transactions that wait for a connection.',
      pool(({ waiting }) => waiting),
    );
  }

  #declareQueue(registry: Registry): void {
    const queue = (of: (queue: QueueState) => Reading) => () => this.#found?.queue && of(this.#found.queue);
    registry.gauge(
      'leasehold_queue_jobs',
      'Jobs that are queued, those included that wait for their time.',
      queue(({ queued }) => queued),
    );
    registry.gauge(
      'leasehold_queue_ready_jobs',
      'Jobs that may be taken now, counted up to 1,000.',
      queue(({ ready }) => ready),
    );
    registry.gauge(
      'leasehold_queue_oldest_age_seconds',
      'How long the job has been ready that has waited longest at the head of its kind and priority; 0 without any.',
      queue(({ oldestMs }) => Math.max(oldestMs ?? 0, 0) / 1000),
    );
    registry.gauge(
      'leasehold_dead_letters',
      'Jobs of streams that were given up and are kept, counted up to 1,000.',
      queue(({ deadLetters }) => deadLetters),
    );
    registry.gauge(
      'leasehold_active_leases',
      'Leases that are held.',
      queue(({ leases }) => leases),
    );
    registry.gauge(
      'leasehold_active_claims',
      'Jobs that are claimed and not leased.',
      queue(({ claims }) => claims),
    );
    registry.gauge(
      'leasehold_capacity_units',
      'Units of capacity, by kind.',
      queue(({ capacity: { total, usable, used, reserved, available } }) =>
        Object.entries({ total, usable, used, reserved, available }).map(([kind, value]) => ({
          labels: { kind },
          value,
        })),
      ),
      'kind',
    );
  }
}

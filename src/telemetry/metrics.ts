/**
 * The metrics of one server: a meter for each kind of call, batch, round and transaction, which its user gets
 * once and keeps. Every name is declared here or in the files of this folder.
 *
 * Code counts once for each call, frame or batch, and never for each lease or job.
 */
import { limits } from '../domain/limits.ts';
import { BatchFamily, type BatchMeter } from './batch-metrics.ts';
import { CallFamily, type CallMeter } from './call-metrics.ts';
import { JobMeter } from './job-metrics.ts';
import { type Counter, type Histogram, Registry, type Series, secondsBounds } from './registry.ts';
import { DatabaseMeter, ReapMeter, RoundMeter } from './service-metrics.ts';
import { spanAttributes } from './span-attributes.ts';
import type { Tracing } from './tracing.ts';

const lagBounds = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

export type Transport = 'grpc' | 'http';

const idNames = ['job_id', 'lease_id', 'worker_id'] as const;
type IdName = (typeof idNames)[number];

export class Metrics {
  readonly registry = new Registry();
  /** The tracing; undefined if the settings request none. */
  readonly tracing: Tracing | undefined;
  readonly jobs: JobMeter;
  readonly #rpcs: CallFamily;
  readonly #routes: CallFamily;
  readonly #messages: Series<Counter>;
  readonly #batches: BatchFamily;
  readonly #rounds: Series<Histogram>;
  readonly #failedRounds: Series<Counter>;
  readonly #heartbeats: Series<Counter>;
  readonly #lag: Series<Histogram>;
  readonly #reaped: Series<Counter>;
  readonly #statements: Series<Histogram>;
  readonly #failedStatements: Series<Counter>;
  readonly #retries: Series<Counter>;

  constructor(tracing?: Tracing) {
    this.tracing = tracing;
    const { registry } = this;
    this.#rpcs = new CallFamily(registry, {
      noun: 'rpc',
      labelNames: ['transport', 'method'],
      outcome: 'code',
      what: 'RPCs',
      by: 'transport (http: Connect and gRPC-Web), method',
    });
    this.#messages = registry.counters(
      'leasehold_rpc_stream_messages_total',
      'Messages of streams, by transport, method and direction.',
      'transport',
      'method',
      'direction',
    );
    this.#routes = new CallFamily(registry, {
      noun: 'http',
      labelNames: ['method', 'route'],
      outcome: 'status',
      what: 'REST requests',
      by: 'method, route',
    });
    this.#batches = new BatchFamily(registry);
    this.jobs = new JobMeter(registry);
    this.#heartbeats = registry.counters(
      'leasehold_heartbeats_total',
      'Heartbeats that were judged, of leases or of owners of files, by verdict.',
      'of',
      'verdict',
    );
    this.#lag = registry.histograms(
      'leasehold_reaper_lag_seconds',
      'How late what was due was handled, by reaper and by what it was.',
      lagBounds,
      'reaper',
      'what',
    );
    this.#reaped = registry.counters(
      'leasehold_reaper_handled_total',
      'What was due and was handled, by reaper and by what it was.',
      'reaper',
      'what',
    );
    this.#rounds = registry.histograms(
      'leasehold_service_round_duration_seconds',
      'Duration of rounds of the background services, in seconds.',
      secondsBounds,
      'service',
    );
    this.#failedRounds = registry.counters(
      'leasehold_service_failed_rounds_total',
      'Rounds of services that failed.',
      'service',
    );
    this.#statements = registry.histograms(
      'leasehold_database_duration_seconds',
      'How long statements and transactions took, waiting for a connection included.',
      secondsBounds,
      'kind',
    );
    this.#failedStatements = registry.counters(
      'leasehold_database_failures_total',
      'Statements, reads and transactions that failed or were given up.',
      'kind',
    );
    this.#retries = registry.counters(
      'leasehold_database_retries_total',
      'Transactions that lost against others and were run again, by SQLSTATE.',
      'sqlstate',
    );
  }

  /** Adds ids to the current call's span, so that its trace can be found by them. */
  noteIds(ids: Readonly<Partial<Record<IdName, string | null | undefined>>>): void {
    if (!this.tracing) return;
    const given = idNames.flatMap((name) => {
      const id = ids[name];
      return id ? [[spanAttributes[name], id.slice(0, limits.nameChars)] as const] : [];
    });
    this.tracing.current()?.note(Object.fromEntries(given));
  }

  rpc(transport: Transport, method: string): CallMeter {
    const messages = (direction: string) => this.#messages.of(transport, method, direction);
    const system = transport === 'grpc' ? 'grpc' : 'connectrpc';
    return this.#rpcs.meter([transport, method], {
      tracing: this.tracing,
      name: method,
      attributes: { [spanAttributes.rpcSystem]: system, [spanAttributes.rpcMethod]: method },
      outcomeAttributes: (code) => ({ [spanAttributes.rpcStatus]: code }),
      received: messages('received'),
      sent: messages('sent'),
    });
  }

  route(method: string, path: string): CallMeter {
    return this.#routes.meter([method, path], {
      tracing: this.tracing,
      name: `${method} ${path}`,
      attributes: { [spanAttributes.httpMethod]: method, [spanAttributes.httpRoute]: path },
      outcomeAttributes: (status) => ({ [spanAttributes.httpStatus]: Number(status) }),
    });
  }

  /** Batchers of one name share a meter. */
  batch(name: string): BatchMeter {
    return this.#batches.meter(name, this.tracing);
  }

  round(service: string): RoundMeter {
    return new RoundMeter(this.#rounds.of(service), this.#failedRounds.of(service));
  }

  heartbeats(of: 'leases' | 'owners'): { extended: Counter; lost: Counter } {
    return { extended: this.#heartbeats.of(of, 'extended'), lost: this.#heartbeats.of(of, 'lost') };
  }

  reaped(reaper: 'jobs' | 'files', what: string): ReapMeter {
    return new ReapMeter(this.#lag.of(reaper, what), this.#reaped.of(reaper, what));
  }

  /** The meter for a database. */
  database(): DatabaseMeter {
    return new DatabaseMeter({
      durations: this.#statements,
      failures: this.#failedStatements,
      retries: this.#retries,
      tracing: this.tracing,
    });
  }
}

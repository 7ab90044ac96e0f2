/**
 * Measures the delay of the event loop, with prom-client's names and method.
 *
 * Node's monitor of the delay uses a timer that fires permanently. It starts with the first scrape, so that a
 * server without scrapes stays idle. `stop` ends it.
 */
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Registry, Sample } from './registry.ts';

/** How often the monitor fires: the default of prom-client, and of Node. */
const samplingMs = 10;
/** Scrapes within this time get the values of the same period. */
const periodDefaultMs = 5_000;

type Monitor = ReturnType<typeof monitorEventLoopDelay>;

/** What the monitor recorded in one period: intervals between two of its timers, in seconds. */
interface Period {
  count: number;
  min: number;
  max: number;
  mean: number;
  stddev: number;
  percentile(of: number): number;
}

const recorded: readonly (readonly [suffix: string, what: string, of: (period: Period) => number])[] = [
  ['min', 'Minimum', ({ min }) => min],
  ['max', 'Maximum', ({ max }) => max],
  ['mean', 'Mean', ({ mean }) => mean],
  ['stddev', 'Standard deviation', ({ stddev }) => stddev],
  ['p50', '50th percentile', (period) => period.percentile(50)],
  ['p90', '90th percentile', (period) => period.percentile(90)],
  ['p99', '99th percentile', (period) => period.percentile(99)],
];

const quantiles = [0.5, 0.9, 0.99, 1];

export class EventLoop {
  readonly #periodMs: number;
  #monitor: Monitor | undefined;
  #periodBeganAt = 0;
  #period: Period | undefined;
  #lagS: number | undefined;
  #delays = 0;
  #delaySumS = 0;

  constructor(registry: Registry, periodMs = periodDefaultMs) {
    this.#periodMs = periodMs;
    registry.gauge(
      'nodejs_eventloop_lag_seconds',
      'Time that a task waited for the event loop at this reading, in seconds.',
      () => this.#lagS,
    );
    for (const [suffix, what, of] of recorded) {
      registry.gauge(
        `nodejs_eventloop_lag_${suffix}_seconds`,
        `${what} of the event loop delays since the reading before, ${samplingMs} ms of sampling included, in seconds.`,
        () => this.#period && of(this.#period),
      );
    }
    registry.summary(
      'leasehold_eventloop_delay_seconds',
      'How late the event loop was, since the last reading. Deprecated: replaced by nodejs_eventloop_lag_p50_seconds, nodejs_eventloop_lag_p90_seconds, nodejs_eventloop_lag_p99_seconds and nodejs_eventloop_lag_max_seconds.',
      () => this.#delaySamples(),
    );
    registry.counting(
      'leasehold_eventloop_seconds_total',
      'Time of the event loop, by what it did: its utilization is the share of active.',
      () => {
        const { active, idle } = performance.eventLoopUtilization();
        return [
          { labels: { state: 'active' }, value: active / 1000 },
          { labels: { state: 'idle' }, value: idle / 1000 },
        ];
      },
      'state',
    );
  }

  /** Measures the values of the next scrape. */
  async measure(): Promise<void> {
    const begunAt = performance.now();
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#lagS = (performance.now() - begunAt) / 1000;
    if (!this.#monitor) {
      this.#monitor = monitorEventLoopDelay({ resolution: samplingMs });
      this.#monitor.enable();
    } else if (performance.now() - this.#periodBeganAt < this.#periodMs) return;
    else this.#endPeriod(this.#monitor);
    this.#periodBeganAt = performance.now();
  }

  stop(): void {
    this.#monitor?.disable();
    this.#monitor = undefined;
  }

  /** Node's monitor has no useful values for a period without a sample. */
  #endPeriod(monitor: Monitor): void {
    const percentiles = new Map([50, 90, 99, 100].map((of) => [of, monitor.percentile(of) / 1e9]));
    this.#period =
      monitor.count === 0
        ? undefined
        : {
            count: monitor.count,
            min: monitor.min / 1e9,
            max: monitor.max / 1e9,
            mean: monitor.mean / 1e9,
            stddev: monitor.stddev / 1e9,
            percentile: (of) => percentiles.get(of) ?? Number.NaN,
          };
    monitor.reset();
    if (!this.#period) return;
    this.#delays += this.#period.count;
    this.#delaySumS += lateS(this.#period.mean) * this.#period.count;
  }

  #delaySamples(): readonly Sample[] {
    const labels = {};
    return [
      ...quantiles.map((quantile) => ({
        labels: { quantile: String(quantile) },
        value: this.#period ? lateS(this.#period.percentile(quantile * 100)) : Number.NaN,
      })),
      { suffix: '_sum', labels, value: this.#delaySumS },
      { suffix: '_count', labels, value: this.#delays },
    ];
  }
}

/** The delay in an interval between two samples: its excess over the sampling interval. */
const lateS = (intervalS: number): number => Math.max(intervalS - samplingMs / 1000, 0);

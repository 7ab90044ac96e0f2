/** The metrics and spans of batches, by kind: size, duration, waiting calls. */
import type { Counter, Histogram, LabelledValue, Registry, Series } from './registry.ts';
import { secondsBounds } from './registry.ts';
import type { Span, Tracing } from './tracing.ts';

const batchBounds = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];

export class BatchFamily {
  readonly #meters = new Map<string, BatchMeter>();
  readonly #sizes: Series<Histogram>;
  readonly #weights: Series<Histogram>;
  readonly #durations: Series<Histogram>;
  readonly #failed: Series<Counter>;
  readonly #refused: Series<Counter>;

  constructor(registry: Registry) {
    this.#sizes = registry.histograms(
      'leasehold_batch_calls',
      'Calls that shared a batch, by kind of batch.',
      batchBounds,
      'batch',
    );
    this.#weights = registry.histograms(
      'leasehold_batch_weight',
      'What batches weighed: jobs, leases or files where a call may name many, more where they are large.',
      batchBounds,
      'batch',
    );
    this.#durations = registry.histograms(
      'leasehold_batch_duration_seconds',
      'How long batches took, from leaving to their answers.',
      secondsBounds,
      'batch',
    );
    this.#failed = registry.counters(
      'leasehold_batch_failures_total',
      'Batches that failed as a whole.',
      'batch',
    );
    this.#refused = registry.counters(
      'leasehold_batch_refused_calls_total',
      'Calls that were refused because too many waited.',
      'batch',
    );
    registry.gauge(
      'leasehold_batch_waiting_calls',
      'Calls that wait for the next batch.',
      () => this.#all(({ waiting }) => waiting),
      'batch',
    );
    registry.gauge(
      'leasehold_batches_in_flight',
      'Batches under way.',
      () => this.#all(({ inFlight }) => inFlight),
      'batch',
    );
  }

  meter(name: string, tracing: Tracing | undefined): BatchMeter {
    const known = this.#meters.get(name);
    if (known) return known;
    const meter = new BatchMeter(name, tracing, {
      size: this.#sizes.of(name),
      weight: this.#weights.of(name),
      duration: this.#durations.of(name),
      failed: this.#failed.of(name),
      refused: this.#refused.of(name),
    });
    this.#meters.set(name, meter);
    return meter;
  }

  #all(value: (meter: BatchMeter) => number): LabelledValue[] {
    return [...this.#meters].map(([batch, meter]) => ({ labels: { batch }, value: value(meter) }));
  }
}

interface BatchParts {
  size: Histogram;
  weight: Histogram;
  duration: Histogram;
  failed: Counter;
  refused: Counter;
}

/** Counts and times batches of one kind. */
export class BatchMeter {
  /** Calls that wait; all batchers of this kind update it. */
  waiting = 0;
  inFlight = 0;
  readonly refused: Counter;
  readonly #name: string;
  readonly #tracing: Tracing | undefined;
  readonly #parts: BatchParts;

  constructor(name: string, tracing: Tracing | undefined, parts: BatchParts) {
    this.#name = name;
    this.#tracing = tracing;
    this.#parts = parts;
    this.refused = parts.refused;
  }

  /** The span of the call that is being served. */
  caller(): Span | undefined {
    return this.#tracing?.current();
  }

  /** Does the work of a batch, as part of the traces of its calls. */
  async run<T>(
    aboard: readonly { span: Span | undefined }[],
    weight: number,
    work: () => Promise<T>,
  ): Promise<T> {
    const { size, duration, failed } = this.#parts;
    const beganAt = performance.now();
    this.inFlight++;
    size.observe(aboard.length);
    this.#parts.weight.observe(weight);
    try {
      if (!this.#tracing) return await work();
      const callers = aboard.map(({ span }) => span);
      return await this.#tracing.batch(this.#name, { callers, weight }, work);
    } catch (error) {
      failed.add();
      throw error;
    } finally {
      this.inFlight--;
      duration.observe((performance.now() - beganAt) / 1000);
    }
  }
}

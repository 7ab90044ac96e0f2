/** The metrics and spans of calls, for all APIs: number, duration and outcome. */
import type { Counter, Histogram, Labels, Registry, Series } from './registry.ts';
import { secondsBounds } from './registry.ts';
import type { Attributes, Span, Tracing } from './tracing.ts';

/** Returns a header or metadata value of a call, by its name in lower case. */
export type Carrier = (name: string) => string | undefined;

/** The headers of an HTTP request, which Node names in lower case. */
export const headersOf =
  ({ headers }: { headers: Readonly<Record<string, string | string[] | undefined>> }): Carrier =>
  (name) =>
    headers[name]?.toString();

/** The trace that a client names, for a call that is refused before it has a span. */
export const traceIdIn = (carrier: Carrier): string | undefined =>
  /^[\da-f]{2}-([\da-f]{32})-/.exec(carrier('traceparent') ?? '')?.[1];

interface CallParts {
  tracing: Tracing | undefined;
  /** The name of its spans, their attributes, and the attributes of an outcome. */
  name: string;
  attributes: Attributes;
  outcomeAttributes(outcome: string): Attributes;
  received?: Counter;
  sent?: Counter;
}

interface CallFamilyOptions {
  noun: string;
  labelNames: readonly string[];
  /** The label of a call's outcome. */
  outcome: string;
  /** The terms in the help text for the calls and for their labels. */
  what: string;
  by: string;
}

export class CallFamily {
  readonly #durations: Series<Histogram>;
  readonly #ended: Series<Counter>;
  readonly #open = new Map<string, { labels: Labels; meter: CallMeter }>();
  readonly #labelNames: readonly string[];

  constructor(registry: Registry, { noun, labelNames, outcome, what, by }: CallFamilyOptions) {
    this.#labelNames = labelNames;
    this.#ended = registry.counters(
      `leasehold_${noun}_requests_total`,
      `How many ${what} were answered, by ${by}, ${outcome}.`,
      ...labelNames,
      outcome,
    );
    this.#durations = registry.histograms(
      `leasehold_${noun}_duration_seconds`,
      `How long ${what} took to be answered, by ${by}; of streams how long they were open.`,
      secondsBounds,
      ...labelNames,
    );
    registry.gauge(
      `leasehold_${noun}_open_requests`,
      `How many ${what} are not answered yet, by ${by}.`,
      () =>
        [...this.#open.values()].flatMap(({ labels, meter: { open } }) =>
          open === 0 ? [] : { labels, value: open },
        ),
      ...labelNames,
    );
  }

  meter(values: readonly string[], parts: CallParts): CallMeter {
    const key = values.join('\0');
    const known = this.#open.get(key);
    if (known) return known.meter;
    const labels = Object.fromEntries(this.#labelNames.map((name, i) => [name, values[i] ?? '']));
    const ended = (outcome: string) => this.#ended.of(...values, outcome);
    const meter = new CallMeter(this.#durations.of(...values), ended, parts);
    this.#open.set(key, { labels, meter });
    return meter;
  }
}

/** Counts and times the calls of one method or route. */
export class CallMeter {
  open = 0;
  readonly received: Counter | undefined;
  readonly sent: Counter | undefined;
  readonly #duration: Histogram;
  readonly #endedBy: (outcome: string) => Counter;
  readonly #ended = new Map<string, Counter>();
  readonly #parts: CallParts;

  constructor(duration: Histogram, ended: (outcome: string) => Counter, parts: CallParts) {
    this.#duration = duration;
    this.#endedBy = ended;
    this.#parts = parts;
    this.received = parts.received;
    this.sent = parts.sent;
  }

  begin(carrier: Carrier): RunningCall {
    this.open++;
    const { tracing, name, attributes, outcomeAttributes } = this.#parts;
    const trace = tracing && {
      tracing,
      span: tracing.beginCall(name, attributes, carrier),
      outcomeAttributes,
    };
    return new RunningCall(this, trace);
  }

  /** Called by `RunningCall`. */
  ended(outcome: string, ms: number): void {
    this.open--;
    this.#duration.observe(ms / 1000);
    let counter = this.#ended.get(outcome);
    if (!counter) {
      counter = this.#endedBy(outcome);
      this.#ended.set(outcome, counter);
    }
    counter.add();
  }
}

interface CallTrace {
  tracing: Tracing;
  span: Span;
  outcomeAttributes: CallParts['outcomeAttributes'];
}

/** One call, from its arrival to its answer. Only the first `end` counts. */
export class RunningCall {
  readonly #meter: CallMeter;
  readonly #trace: CallTrace | undefined;
  readonly #beganAt = performance.now();
  #over = false;

  constructor(meter: CallMeter, trace: CallTrace | undefined) {
    this.#meter = meter;
    this.#trace = trace;
  }

  /** The trace that the call belongs to; undefined without tracing. */
  get traceId(): string | undefined {
    return this.#trace?.span.traceId;
  }

  /** Does the work of the call; batches and transactions in it become part of its trace. */
  run<T>(work: () => T): T {
    return this.#trace ? this.#trace.tracing.within(this.#trace.span, work) : work();
  }

  /** `failed` means that the server is the cause. */
  end(outcome: string, failed = false): void {
    if (this.#over) return;
    this.#over = true;
    this.#meter.ended(outcome, performance.now() - this.#beganAt);
    this.#trace?.span.end(this.#trace.outcomeAttributes(outcome), failed);
  }
}

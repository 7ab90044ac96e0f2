/**
 * The tracing interface for traced code. `otlp.ts` makes and sends spans. It is loaded only if the settings
 * name a collector; otherwise there is no `Tracing`, and each traced call costs one comparison.
 */
import type { Config } from '../config.ts';
import type { Log } from '../lib/log.ts';
import type { Carrier } from './call-metrics.ts';
import type { StatementName } from './statement-names.ts';

export type Attributes = Readonly<Record<string, string | number>>;

/** A span that has not ended. */
export interface Span {
  readonly traceId: string;
  /** Adds attributes. */
  note(attributes: Attributes): void;
  end(attributes: Attributes, failed: boolean): void;
}

/** The calls that a batch serves. */
export interface BatchFacts {
  /** The spans of its calls, for the calls that have one. */
  callers: readonly (Span | undefined)[];
  weight: number;
}

export interface Tracing {
  /** Begins the span of a call, as part of the client's trace if there is one. */
  beginCall(name: string, attributes: Attributes, carrier: Carrier): Span;
  /** Does work as part of a span, or of none. */
  within<T>(span: Span | undefined, work: () => T): T;
  /** The span of the code that is running. */
  current(): Span | undefined;
  /**
   * Does the work of a batch in a span of its own, which belongs to the first call's trace and links to all
   * calls.
   */
  batch<T>(name: string, facts: BatchFacts, work: () => Promise<T>): Promise<T>;
  /** Runs a statement in a span of its own if the running code is part of a span. */
  ask<T>(statement: StatementName, work: () => Promise<T>): Promise<T>;
  /** Sends the remaining spans, within a time limit. */
  stop(): Promise<void>;
}

type TracingConfig = Pick<Config, 'otlpEndpoint' | 'otlpTracesEndpoint'>;

/** The URL for spans: the address for traces unchanged, or the common address with the path for traces. */
export function tracesUrl({ otlpEndpoint, otlpTracesEndpoint }: TracingConfig): string | undefined {
  if (otlpTracesEndpoint !== undefined) return otlpTracesEndpoint;
  return otlpEndpoint === undefined ? undefined : `${otlpEndpoint.replace(/\/+$/, '')}/v1/traces`;
}

/** Undefined if the settings request no traces. */
export async function openTracing(
  config: TracingConfig,
  env: NodeJS.ProcessEnv,
  log: Log,
): Promise<Tracing | undefined> {
  const url = tracesUrl(config);
  const isOff = env.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || env.OTEL_TRACES_EXPORTER === 'none';
  if (url === undefined || isOff) return undefined;
  const { OtlpTracing } = await import('./otlp.ts');
  return new OtlpTracing({ url, env, log });
}

/**
 * Traces, as those see them who are traced. What makes and sends spans is in `otlp.ts`, and is loaded only where somebody
 * has said where to send them; otherwise there is no `Tracing` at all, and being traced costs one comparison.
 */
import type { Config } from '../config.ts';
import type { Log } from '../lib/log.ts';
import type { Carrier } from './call-metrics.ts';
import type { StatementName } from './statement-names.ts';

export type Attributes = Readonly<Record<string, string | number>>;

/** A span that goes on. */
export interface Span {
  /** Says more of it. */
  note(attributes: Attributes): void;
  end(attributes: Attributes, failed: boolean): void;
}

/** What a batch is for. */
export interface BatchFacts {
  /** The spans of its calls, where they have one. */
  callers: readonly (Span | undefined)[];
  weight: number;
}

export interface Tracing {
  /** A call has come in, perhaps as part of a trace that its client began. */
  beginCall(name: string, attributes: Attributes, carrier: Carrier): Span;
  /** Does work as part of a span, or of none. */
  within<T>(span: Span | undefined, work: () => T): T;
  /** What is being done just now is part of this span. */
  current(): Span | undefined;
  /** Does the work of a batch in a span of its own: part of the first call's trace, and linked to all calls. */
  batch<T>(name: string, facts: BatchFacts, work: () => Promise<T>): Promise<T>;
  /** Asks the database in a span of its own where that is part of one. */
  ask<T>(statement: StatementName, work: () => Promise<T>): Promise<T>;
  /** Sends what has not been sent, within a bound. */
  stop(): Promise<void>;
}

type TracingConfig = Pick<Config, 'otlpEndpoint' | 'otlpTracesEndpoint'>;

/** Where spans are to be sent: the address for traces as it is, or the common one with the path for traces. */
export function tracesUrl({ otlpEndpoint, otlpTracesEndpoint }: TracingConfig): string | undefined {
  if (otlpTracesEndpoint !== undefined) return otlpTracesEndpoint;
  return otlpEndpoint === undefined ? undefined : `${otlpEndpoint.replace(/\/+$/, '')}/v1/traces`;
}

/** Undefined where traces are not asked for. */
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

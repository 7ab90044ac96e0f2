/**
 * Makes spans and sends them to a collector, over OTLP/HTTP in protobuf.
 *
 * Structure: a call has a span. Its child spans are the batch that served it and the transaction of the
 * batch. A batch serves many calls: it belongs to the trace of the first call, and links to all calls, up to
 * the maximum of links of a span. A stream has one span and none for its frames, because it may last for
 * days.
 *
 * Guarantees: no call waits for the collector. Spans are gathered and sent in the background.
 *
 * Lifecycle: `stop` sends the remaining spans, and gives up after `stopMs`.
 *
 * Failure modes: while the collector is unavailable or slow, spans beyond a bound are dropped. This is logged
 * once for each outage.
 *
 * The exporter and the resource read their variables themselves; the sampler and the processor do not, see
 * `otlp-settings.ts`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api';
import { type ExportResult, ExportResultCode, W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { withTimeout } from '../lib/async/with-timeout.ts';
import type { Log } from '../lib/log.ts';
import { version } from '../lib/version.ts';
import type { Carrier } from './call-metrics.ts';
import { processorOptions, samplerOf } from './otlp-settings.ts';
import { spanAttributes } from './span-attributes.ts';
import type { StatementName } from './statement-names.ts';
import type { Attributes, BatchFacts, Span, Tracing } from './tracing.ts';

/** How long sending the remaining spans may take when the server stops. */
const stopMs = 2_000;

export interface OtlpOptions {
  url: string;
  env: NodeJS.ProcessEnv;
  log: Log;
}

type OtelSpan = ReturnType<Tracer['startSpan']>;

export class OtlpTracing implements Tracing {
  readonly #provider: TracerProvider;
  readonly #tracer: Tracer;
  readonly #propagator = new W3CTraceContextPropagator();
  readonly #spans = new AsyncLocalStorage<OtlpSpan | undefined>();
  #stopped: Promise<void> | undefined;

  constructor({ url, env, log }: OtlpOptions) {
    const exporter = new LoggingExporter(new OTLPTraceExporter({ url }), log);
    this.#provider = new TracerProvider({
      sampler: samplerOf(env, log),
      resource: defaultResource()
        .merge(resourceFromAttributes({ 'service.name': 'leasehold', 'service.version': version }))
        .merge(detectResources({ detectors: [envDetector] })),
      spanProcessors: [new BatchSpanProcessor({ exporter, ...processorOptions(env, log) })],
    });
    this.#tracer = this.#provider.getTracer('leasehold', version);
  }

  beginCall(name: string, attributes: Attributes, carrier: Carrier): Span {
    const context = this.#propagator.extract(ROOT_CONTEXT, carrier, getter);
    return new OtlpSpan(this.#tracer.startSpan(name, { kind: SpanKind.SERVER, attributes }, context));
  }

  within<T>(span: Span | undefined, work: () => T): T {
    return this.#spans.run(span as OtlpSpan | undefined, work);
  }

  /**
   * A timer that was set during a call still runs in the call's span, which may have ended and then does not
   * count.
   */
  current(): Span | undefined {
    const span = this.#spans.getStore();
    return span?.goesOn ? span : undefined;
  }

  batch<T>(name: string, { callers, weight }: BatchFacts, work: () => Promise<T>): Promise<T> {
    const spans = callers.flatMap((caller) => (caller instanceof OtlpSpan ? caller.span : []));
    const links = [...new Set(spans)].map((span) => ({ context: span.spanContext() }));
    const attributes = { [spanAttributes.batchCalls]: callers.length, [spanAttributes.batchWeight]: weight };
    return this.#below(spans[0], `batch ${name}`, { attributes, links }, work);
  }

  ask<T>({ name, attributes }: StatementName, work: () => Promise<T>): Promise<T> {
    const current = this.current();
    if (!(current instanceof OtlpSpan)) return work();
    return this.#below(current.span, name, { kind: SpanKind.CLIENT, attributes }, work);
  }

  stop(): Promise<void> {
    this.#stopped ??= withTimeout(
      this.#provider.shutdown().catch(() => {}),
      stopMs,
      undefined,
    );
    return this.#stopped;
  }

  /** Does work in a child span, or in no span if there is no parent. */
  async #below<T>(
    parent: OtelSpan | undefined,
    name: string,
    options: Parameters<Tracer['startSpan']>[1],
    work: () => Promise<T>,
  ): Promise<T> {
    if (!parent) return this.#spans.run(undefined, work);
    const context = trace.setSpan(ROOT_CONTEXT, parent);
    const span = new OtlpSpan(this.#tracer.startSpan(name, options, context));
    let isDone = false;
    try {
      const answer = await this.#spans.run(span, work);
      isDone = true;
      return answer;
    } finally {
      span.end({}, !isDone);
    }
  }
}

class OtlpSpan implements Span {
  readonly span: OtelSpan;

  constructor(span: OtelSpan) {
    this.span = span;
  }

  /** The span has not ended, and the sampler keeps it. */
  get goesOn(): boolean {
    return this.span.isRecording();
  }

  get traceId(): string {
    return this.span.spanContext().traceId;
  }

  note(attributes: Attributes): void {
    this.span.setAttributes(attributes);
  }

  end(attributes: Attributes, failed: boolean): void {
    this.span.setAttributes(attributes);
    if (failed) this.span.setStatus({ code: SpanStatusCode.ERROR });
    this.span.end();
  }
}

const getter = {
  get: (carrier: unknown, name: string) => (carrier as Carrier)(name),
  keys: () => [],
};

/** Logs once that spans cannot be sent, and once that they can again. */
class LoggingExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #log: Log;
  #isFailing = false;

  constructor(exporter: SpanExporter, log: Log) {
    this.#exporter = exporter;
    this.#log = log;
  }

  export(spans: ReadableSpan[], onResult: (result: ExportResult) => void): void {
    this.#exporter.export(spans, (result) => {
      this.#note(result);
      onResult(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  async forceFlush(): Promise<void> {
    await this.#exporter.forceFlush?.();
  }

  #note({ code, error }: ExportResult): void {
    const failed = code !== ExportResultCode.SUCCESS;
    if (failed && !this.#isFailing) this.#log.warn('traces cannot be sent', { error });
    if (!failed && this.#isFailing) this.#log.info('traces can be sent again');
    this.#isFailing = failed;
  }
}

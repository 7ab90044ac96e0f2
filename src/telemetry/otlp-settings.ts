/** The standard variables that the SDK's sampler and span processor do not read themselves. */
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  type BatchSpanProcessorOptions,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace';
import type { Log } from '../lib/log.ts';

const samplers: Readonly<Record<string, (ratio: number) => Sampler>> = {
  always_on: () => new AlwaysOnSampler(),
  always_off: () => new AlwaysOffSampler(),
  traceidratio: (ratio) => new TraceIdRatioBasedSampler(ratio),
  parentbased_always_on: () => new ParentBasedSampler({ root: new AlwaysOnSampler() }),
  parentbased_always_off: () => new ParentBasedSampler({ root: new AlwaysOffSampler() }),
  parentbased_traceidratio: (ratio) => new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) }),
};

/** The sampler: by default it keeps the traces that the client keeps, and all that begin here. */
export function samplerOf(env: NodeJS.ProcessEnv, log: Log): Sampler {
  const name = env.OTEL_TRACES_SAMPLER?.trim() || 'parentbased_always_on';
  const text = env.OTEL_TRACES_SAMPLER_ARG?.trim() || '1';
  const given = Number(text);
  const isRatio = given >= 0 && given <= 1;
  if (!isRatio && name.endsWith('traceidratio'))
    log.warn('OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1; 1 counts', { value: text });
  const make = Object.hasOwn(samplers, name) ? samplers[name] : undefined;
  if (make) return make(isRatio ? given : 1);
  const known = Object.keys(samplers).join(', ');
  log.warn(`OTEL_TRACES_SAMPLER must be one of ${known}; parentbased_always_on counts`, { value: name });
  return new ParentBasedSampler({ root: new AlwaysOnSampler() });
}

const numbers = {
  OTEL_BSP_SCHEDULE_DELAY: 'scheduledDelayMillis',
  OTEL_BSP_EXPORT_TIMEOUT: 'exportTimeoutMillis',
  OTEL_BSP_MAX_QUEUE_SIZE: 'maxQueueSize',
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: 'maxExportBatchSize',
} as const;

/** The options of the span processor; omitted ones have the default of the standard. */
export function processorOptions(
  env: NodeJS.ProcessEnv,
  log: Log,
): Omit<BatchSpanProcessorOptions, 'exporter'> {
  const options: Omit<BatchSpanProcessorOptions, 'exporter'> = {};
  for (const [variable, option] of Object.entries(numbers)) {
    const text = env[variable]?.trim() ?? '';
    if (text === '') continue;
    if (/^\d{1,9}$/.test(text) && Number(text) > 0) options[option] = Number(text);
    else log.warn(`${variable} must be a whole number above 0; its default counts`, { value: text });
  }
  return options;
}

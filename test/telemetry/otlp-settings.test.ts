import { expect } from 'chai';
import { createLog } from '../../src/lib/log.ts';
import { processorOptions, samplerOf } from '../../src/telemetry/otlp-settings.ts';
import { openTracing, tracesUrl } from '../../src/telemetry/tracing.ts';

describe('the OTLP settings', () => {
  let complaints: string[];
  const log = createLog({ level: 'warn', human: true, write: (line) => void complaints.push(line) });
  beforeEach(() => {
    complaints = [];
  });

  const unset = { otlpEndpoint: undefined, otlpTracesEndpoint: undefined };
  const here = { ...unset, otlpEndpoint: 'http://127.0.0.1:1' };

  it('reads the address for traces as it is, or the common address with a path', () => {
    expect(tracesUrl(unset)).to.equal(undefined);
    expect(tracesUrl(here)).to.equal('http://127.0.0.1:1/v1/traces');
    expect(tracesUrl({ ...unset, otlpEndpoint: 'http://h/base/' })).to.equal('http://h/base/v1/traces');
    expect(tracesUrl({ ...here, otlpTracesEndpoint: 'http://h/x' })).to.equal('http://h/x');
  });

  it('switches traces off', async () => {
    expect(await openTracing(unset, {}, log)).to.equal(undefined);
    expect(await openTracing(here, { OTEL_SDK_DISABLED: 'TRUE' }, log)).to.equal(undefined);
    expect(await openTracing(here, { OTEL_TRACES_EXPORTER: 'none' }, log)).to.equal(undefined);
    const tracing = await openTracing(here, { OTEL_SDK_DISABLED: 'false' }, log);
    expect(tracing).to.not.equal(undefined);
    await tracing?.stop();
  });

  const sampler = (name?: string, arg?: string) =>
    samplerOf({ OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: arg }, log).toString();

  it('selects the sampler', () => {
    expect(sampler()).to.match(/^ParentBased\{root=AlwaysOnSampler/);
    expect(sampler('always_off')).to.equal('AlwaysOffSampler');
    expect(sampler('traceidratio', '0.25')).to.equal('TraceIdRatioBased{0.25}');
    expect(sampler('parentbased_traceidratio', '0.5')).to.match(
      /^ParentBased\{root=TraceIdRatioBased\{0.5\}/,
    );
    expect(sampler('traceidratio')).to.equal('TraceIdRatioBased{1}');
    expect(complaints).to.deep.equal([]);
  });

  it('reports invalid settings, and applies their defaults', () => {
    expect(sampler('toString')).to.match(/^ParentBased\{root=AlwaysOnSampler/);
    expect(sampler('traceidratio', '2')).to.equal('TraceIdRatioBased{1}');
    expect(
      processorOptions({ OTEL_BSP_MAX_QUEUE_SIZE: 'many', OTEL_BSP_SCHEDULE_DELAY: '7' }, log),
    ).to.deep.equal({ scheduledDelayMillis: 7 });
    for (const [i, name] of [
      'OTEL_TRACES_SAMPLER',
      'OTEL_TRACES_SAMPLER_ARG',
      'OTEL_BSP_MAX_QUEUE_SIZE',
    ].entries())
      expect(complaints[i]).to.include(name);
  });
});

/** Names, types, labels and units are those of prom-client 15, so that its dashboards and alerts work. */
import { readdirSync, readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'chai';
import { EventLoop } from '../../src/telemetry/event-loop.ts';
import { ProcessMetrics } from '../../src/telemetry/process-metrics.ts';
import { Registry } from '../../src/telemetry/registry.ts';
import { MetricsText } from '../support/metrics-text.ts';
import { eventually } from '../support/server.ts';

const promClient: Readonly<Record<string, string>> = {
  process_cpu_user_seconds_total: 'COUNTER',
  process_cpu_system_seconds_total: 'COUNTER',
  process_cpu_seconds_total: 'COUNTER',
  process_resident_memory_bytes: 'GAUGE',
  process_start_time_seconds: 'GAUGE',
  process_open_fds: 'GAUGE',
  process_max_fds: 'GAUGE',
  nodejs_eventloop_lag_seconds: 'GAUGE',
  nodejs_eventloop_lag_min_seconds: 'GAUGE',
  nodejs_eventloop_lag_max_seconds: 'GAUGE',
  nodejs_eventloop_lag_mean_seconds: 'GAUGE',
  nodejs_eventloop_lag_stddev_seconds: 'GAUGE',
  nodejs_eventloop_lag_p50_seconds: 'GAUGE',
  nodejs_eventloop_lag_p90_seconds: 'GAUGE',
  nodejs_eventloop_lag_p99_seconds: 'GAUGE',
  nodejs_gc_duration_seconds: 'HISTOGRAM',
  nodejs_heap_size_total_bytes: 'GAUGE',
  nodejs_heap_size_used_bytes: 'GAUGE',
  nodejs_external_memory_bytes: 'GAUGE',
  nodejs_version_info: 'GAUGE',
};

/** Names of earlier versions, and what their HELP must name. */
const deprecated: Readonly<Record<string, readonly string[]>> = {
  leasehold_gc_duration_seconds: ['nodejs_gc_duration_seconds'],
  leasehold_heap_bytes: [
    'nodejs_heap_size_used_bytes',
    'nodejs_heap_size_total_bytes',
    'nodejs_external_memory_bytes',
  ],
  leasehold_eventloop_delay_seconds: ['nodejs_eventloop_lag_p50_seconds', 'nodejs_eventloop_lag_p99_seconds'],
};

describe('the metrics of the process', () => {
  let registry: Registry;
  let figures: ProcessMetrics;
  beforeEach(() => {
    registry = new Registry();
    figures = new ProcessMetrics(registry, 'embedded');
  });
  afterEach(() => figures.stop());

  const read = () => new MetricsText(registry.render());
  const value = (name: string) => read().value(name) ?? Number.NaN;

  it('uses the names and types of prom-client', () => {
    const found = Object.fromEntries(read().families.map(({ name, type }) => [name, type]));
    expect(found).to.include(promClient);
  });

  it('uses the labels of prom-client', () => {
    const text = read();
    for (const name of Object.keys(promClient).filter((each) =>
      /^process_(cpu|res|start)|_bytes$/.test(each),
    ))
      expect(text.labelSets(name), name).to.deep.equal([{}]);
    const [major, minor, patch] = process.versions.node.split('.');
    const { version } = process;
    expect(text.labelSets('nodejs_version_info')).to.deep.equal([{ version, major, minor, patch }]);
    expect(text.value('nodejs_version_info')).to.equal(1);
  });

  it('keeps the names of earlier versions, whose HELP names their replacements', () => {
    const helps = new Map(read().families.map(({ name, help }) => [name, help]));
    for (const [name, replacements] of Object.entries(deprecated)) {
      expect(helps.get(name), name).to.match(/Deprecated: replaced by nodejs_/);
      for (const replacement of replacements) expect(helps.get(name)).to.include(replacement);
    }
  });

  it('counts processor time by user, by system and in all', () => {
    const before = process.cpuUsage();
    const text = read();
    const after = process.cpuUsage();
    const seconds = (mode: string) => text.value(`process_cpu_${mode}seconds_total`);
    expect(seconds('user_')).to.be.within(before.user / 1e6, after.user / 1e6);
    expect(seconds('system_')).to.be.within(before.system / 1e6, after.system / 1e6);
    const sum = ({ user, system }: NodeJS.CpuUsage) => (user + system) / 1e6;
    expect(seconds('')).to.be.within(sum(before), sum(after));
  });

  it('reports memory in bytes, and the start in seconds since 1970', () => {
    const { heapTotal, external } = process.memoryUsage();
    expect(value('nodejs_heap_size_total_bytes')).to.be.within(heapTotal / 2, heapTotal * 2);
    expect(value('nodejs_heap_size_used_bytes')).to.be.within(1e6, heapTotal * 2);
    expect(value('nodejs_external_memory_bytes')).to.be.within(external / 2, external * 2);
    expect(value('process_resident_memory_bytes')).to.be.within(1e6, 1e11);
    expect(value('process_start_time_seconds')).to.be.closeTo(Date.now() / 1000 - process.uptime(), 1);
  });

  if (process.platform === 'linux') {
    it('counts open file descriptors without its own, and reports their soft limit', () => {
      expect(value('process_open_fds')).to.equal(readdirSync('/proc/self/fd').length - 1);
      const [, limit] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
      expect(value('process_max_fds')).to.equal(Number(limit));
    });
  }

  it('reports the delay of the event loop at the time of the reading', async () => {
    await figures.measure();
    expect(value('nodejs_eventloop_lag_seconds')).to.be.within(0, 1);
    const measured = figures.measure();
    block(60);
    await measured;
    expect(value('nodejs_eventloop_lag_seconds')).to.be.within(0.06, 1);
  });

  it('reports the intervals that Node records, including its sampling of 10 ms', async () => {
    const loopRegistry = new Registry();
    const loop = new EventLoop(loopRegistry, 0);
    try {
      const text = await eventually('a period with looks at the event loop', async () => {
        await loop.measure();
        const found = new MetricsText(loopRegistry.render());
        return found.value('nodejs_eventloop_lag_p50_seconds') === undefined ? undefined : found;
      });
      const lag = (of: string) => text.value(`nodejs_eventloop_lag_${of}_seconds`) ?? Number.NaN;
      expect(lag('min')).to.be.within(0.008, 10);
      const rising = ['min', 'p50', 'p90', 'p99', 'max'].map(lag);
      expect(rising).to.deep.equal(rising.toSorted((a, b) => a - b));
      expect(lag('mean')).to.be.within(lag('min'), lag('max'));
      expect(lag('stddev')).to.be.within(0, lag('max'));
      const late = text.value('leasehold_eventloop_delay_seconds', { quantile: '1' });
      expect(late).to.be.closeTo(Math.max(lag('max') - 0.01, 0), 1e-6);
    } finally {
      loop.stop();
    }
  });

  it('measures garbage collections by kind, in the buckets of prom-client', async () => {
    collectGarbage();
    const kind = { kind: 'major' };
    const text = await eventually('a collection that is told', async () => {
      const found = read();
      return found.value('nodejs_gc_duration_seconds_count', kind) === undefined ? undefined : found;
    });
    const bounds = text.labelSets('nodejs_gc_duration_seconds_bucket').filter((set) => set.kind === 'major');
    expect(bounds.map(({ le }) => le)).to.deep.equal(['0.001', '0.01', '0.1', '1', '2', '5', '+Inf']);
    for (const part of ['count', 'sum'])
      expect(text.value(`nodejs_gc_duration_seconds_${part}`, kind)).to.equal(
        text.value(`leasehold_gc_duration_seconds_${part}`, kind),
      );
  });
});

/** Blocks the event loop. */
function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  setFlagsFromString('--no-expose-gc');
}

/**
 * Metrics of this process: processor time, memory, files, garbage collections and the event loop. Names,
 * types, labels and units are those of prom-client 15, so that its dashboards and alerts work.
 * `leasehold_gc_duration_seconds`, `leasehold_heap_bytes` and `leasehold_eventloop_delay_seconds` are the
 * names of earlier versions.
 *
 * The constructor starts observing garbage collections, the first `measure` the event loop. `stop` ends both.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { constants, PerformanceObserver, performance } from 'node:perf_hooks';
import { version } from '../lib/version.ts';
import { EventLoop } from './event-loop.ts';
import type { Histogram, Registry, Series } from './registry.ts';

/** The buckets of prom-client. */
const gcBounds = [0.001, 0.01, 0.1, 1, 2, 5];
const deprecatedGcBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1];

const gcKinds: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'minor',
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'major',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'incremental',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weakcb',
};
/** The one kind whose label differs in `leasehold_gc_duration_seconds`. */
const deprecatedGcKinds: Readonly<Record<string, string>> = { weakcb: 'weak_callbacks' };

interface GarbageEntry {
  duration: number;
  detail?: { kind?: number };
}

export class ProcessMetrics {
  readonly #garbage: PerformanceObserver;
  readonly #eventLoop: EventLoop;

  constructor(registry: Registry, engine: string) {
    this.#garbage = observeGarbage(declareGarbage(registry));
    declareProcess(registry);
    declareHeap(registry);
    this.#eventLoop = new EventLoop(registry);
    declareVersions(registry, engine);
  }

  /** Takes the measurements that need a turn of the event loop, for the next scrape. */
  measure(): Promise<void> {
    return this.#eventLoop.measure();
  }

  stop(): void {
    this.#garbage.disconnect();
    this.#eventLoop.stop();
  }
}

interface Pauses {
  current: Series<Histogram>;
  deprecated: Series<Histogram>;
}

const declareGarbage = (registry: Registry): Pauses => ({
  current: registry.histograms(
    'nodejs_gc_duration_seconds',
    'Duration of garbage collections by kind (major, minor, incremental, weakcb), in seconds.',
    gcBounds,
    'kind',
  ),
  deprecated: registry.histograms(
    'leasehold_gc_duration_seconds',
    'How long garbage collections took, by kind. Deprecated: replaced by nodejs_gc_duration_seconds.',
    deprecatedGcBounds,
    'kind',
  ),
});

function observeGarbage({ current, deprecated }: Pauses): PerformanceObserver {
  const observer = new PerformanceObserver((list) => {
    for (const { duration, detail } of list.getEntries() as unknown as GarbageEntry[]) {
      const kind = gcKinds[detail?.kind ?? 0] ?? 'other';
      current.of(kind).observe(duration / 1000);
      deprecated.of(deprecatedGcKinds[kind] ?? kind).observe(duration / 1000);
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  return observer;
}

function declareProcess(registry: Registry): void {
  registry.counting(
    'process_cpu_user_seconds_total',
    'Processor time of the process in user mode, in seconds.',
    () => process.cpuUsage().user / 1e6,
  );
  registry.counting(
    'process_cpu_system_seconds_total',
    'Processor time of the process in system mode, in seconds.',
    () => process.cpuUsage().system / 1e6,
  );
  registry.counting(
    'process_cpu_seconds_total',
    'Processor time of the process in user and system mode, in seconds.',
    () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    },
  );
  registry.gauge('process_resident_memory_bytes', 'Resident memory of the process, in bytes.', () =>
    process.memoryUsage.rss(),
  );
  registry.gauge(
    'process_start_time_seconds',
    'Start of the process, in seconds since 1970.',
    () => performance.timeOrigin / 1000,
  );
  registry.gauge('process_open_fds', 'Open file descriptors of the process, on Linux.', openFiles);
  registry.gauge('process_max_fds', 'Maximum number of open file descriptors, on Linux.', filesMax);
}

function declareHeap(registry: Registry): void {
  registry.gauge(
    'nodejs_heap_size_total_bytes',
    'Size of the JavaScript heap, in bytes.',
    () => process.memoryUsage().heapTotal,
  );
  registry.gauge(
    'nodejs_heap_size_used_bytes',
    'Used part of the JavaScript heap, in bytes.',
    () => process.memoryUsage().heapUsed,
  );
  registry.gauge(
    'nodejs_external_memory_bytes',
    'Memory outside of the heap that JavaScript objects own, array buffers included, in bytes.',
    () => process.memoryUsage().external,
  );
  registry.gauge(
    'leasehold_heap_bytes',
    'Memory of JavaScript, by kind. Deprecated: replaced by nodejs_heap_size_used_bytes, nodejs_heap_size_total_bytes and nodejs_external_memory_bytes.',
    () => {
      const { heapUsed, heapTotal, external, arrayBuffers } = process.memoryUsage();
      return [
        { labels: { kind: 'used' }, value: heapUsed },
        { labels: { kind: 'total' }, value: heapTotal },
        { labels: { kind: 'external' }, value: external },
        { labels: { kind: 'array_buffers' }, value: arrayBuffers },
      ];
    },
    'kind',
  );
}

function declareVersions(registry: Registry, engine: string): void {
  const [major = '', minor = '', patch = ''] = process.versions.node.split('.');
  const node = { version: process.version, major, minor, patch };
  registry.gauge(
    'nodejs_version_info',
    'Always 1; its labels are the version of Node.',
    () => [{ labels: node, value: 1 }],
    ...Object.keys(node),
  );
  const build = { version, node: process.version, database: engine };
  registry.gauge(
    'leasehold_build_info',
    'Always 1; its labels say what runs.',
    () => [{ labels: build, value: 1 }],
    ...Object.keys(build),
  );
}

/** Only Linux has the folder. One entry is the descriptor that reads it. */
function openFiles(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length - 1;
  } catch {
    return undefined;
  }
}

/** The soft limit; only Linux has the file. */
function filesMax(): number | undefined {
  try {
    const [, limit] = /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return limit === 'unlimited' ? Number.POSITIVE_INFINITY : limit === undefined ? undefined : Number(limit);
  } catch {
    return undefined;
  }
}

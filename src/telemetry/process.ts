/**
 * How this process is: its processor time, its memory, its garbage, and whether its event loop keeps up.
 *
 * Garbage is watched from the construction on. The delay of the event loop is watched from the first time somebody
 * reads it, because watching it takes a timer that fires all the time: a server whose metrics nobody reads stays idle.
 * Ends with `stop`.
 */
import { readdirSync } from 'node:fs';
import { constants, monitorEventLoopDelay, PerformanceObserver, performance } from 'node:perf_hooks';
import { version } from '../version.ts';
import type { Registry, Sample } from './registry.ts';

/** How often the event loop is looked at. */
const lookMs = 20;
/** Readers that follow each other within this time are told of the same period. */
const periodMs = 5_000;
const gcBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1];

const gcKinds: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'minor',
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'major',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'incremental',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weak_callbacks',
};

interface GarbageEntry {
  duration: number;
  detail?: { kind?: number };
}

export class ProcessFigures {
  readonly #garbage: PerformanceObserver;
  readonly #delay = new LoopDelay();

  constructor(registry: Registry, engine: string) {
    const pauses = registry.histograms(
      'leasehold_gc_duration_seconds',
      'How long garbage collections took, by kind.',
      gcBounds,
      'kind',
    );
    this.#garbage = new PerformanceObserver((list) => {
      for (const { duration, detail } of list.getEntries() as unknown as GarbageEntry[]) {
        const { kind = 0 } = detail ?? {};
        pauses.of(gcKinds[kind] ?? 'other').observe(duration / 1000);
      }
    });
    this.#garbage.observe({ entryTypes: ['gc'] });
    declareProcess(registry);
    declareHeap(registry);
    registry.summary(
      'leasehold_eventloop_delay_seconds',
      'How late the event loop was, since the last reading.',
      () => this.#delay.read(),
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
    );
    registry.gauge('leasehold_build_info', 'Always 1; its labels say what runs.', () => [
      { labels: { version, node: process.version, database: engine }, value: 1 },
    ]);
  }

  stop(): void {
    this.#garbage.disconnect();
    this.#delay.stop();
  }
}

function declareProcess(registry: Registry): void {
  registry.counting('process_cpu_seconds_total', 'Processor time, by mode.', () => {
    const { user, system } = process.cpuUsage();
    return [
      { labels: { mode: 'user' }, value: user / 1e6 },
      { labels: { mode: 'system' }, value: system / 1e6 },
    ];
  });
  registry.gauge('process_resident_memory_bytes', 'Memory that the process has in use.', () =>
    process.memoryUsage.rss(),
  );
  registry.gauge(
    'process_start_time_seconds',
    'When the process began, in seconds since 1970.',
    () => performance.timeOrigin / 1000,
  );
  registry.gauge('process_open_fds', 'Open files and sockets, where the system tells.', openFiles);
}

function declareHeap(registry: Registry): void {
  registry.gauge('leasehold_heap_bytes', 'Memory of JavaScript, by kind.', () => {
    const { heapUsed, heapTotal, external, arrayBuffers } = process.memoryUsage();
    return [
      { labels: { kind: 'used' }, value: heapUsed },
      { labels: { kind: 'total' }, value: heapTotal },
      { labels: { kind: 'external' }, value: external },
      { labels: { kind: 'array_buffers' }, value: arrayBuffers },
    ];
  });
}

/** Only Linux has the folder. */
function openFiles(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return undefined;
  }
}

const quantiles = [0.5, 0.9, 0.99, 1];

type Watch = ReturnType<typeof monitorEventLoopDelay>;

class LoopDelay {
  #watch: Watch | undefined;
  #periodBeganAt = 0;
  #told: readonly Sample[] = [];
  #count = 0;
  #sumS = 0;

  read(): readonly Sample[] {
    if (!this.#watch) {
      this.#watch = monitorEventLoopDelay({ resolution: lookMs });
      this.#watch.enable();
    } else if (performance.now() - this.#periodBeganAt < periodMs) return this.#told;
    this.#periodBeganAt = performance.now();
    this.#told = this.#tell(this.#watch);
    this.#watch.reset();
    return this.#told;
  }

  stop(): void {
    this.#watch?.disable();
    this.#watch = undefined;
  }

  #tell(watch: Watch): readonly Sample[] {
    if (watch.count > 0) {
      this.#count += watch.count;
      this.#sumS += lateS(watch.mean) * watch.count;
    }
    const parts: Sample[] = quantiles.map((quantile) => ({
      labels: { quantile: String(quantile) },
      value: watch.count === 0 ? Number.NaN : lateS(watch.percentile(quantile * 100)),
    }));
    const labels = {};
    return [
      ...parts,
      { suffix: '_sum', labels, value: this.#sumS },
      { suffix: '_count', labels, value: this.#count },
    ];
  }
}

/** The histogram counts the time between two looks, of which one look's interval is as it should be. */
const lateS = (ns: number): number => Math.max(ns / 1e9 - lookMs / 1000, 0);

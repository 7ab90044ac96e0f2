import { DomainError, invalid } from '../../domain/errors.ts';
import { usableUnits } from '../../domain/leases/capacity.ts';
import {
  type GetSnapshot,
  type GetTimeseries,
  type WatchSnapshots,
  watchMs,
} from '../../domain/requests/stats.ts';
import {
  metrics,
  planSeries,
  type Snapshot,
  seriesPoints,
  type Timeseries,
} from '../../domain/stats/series.ts';
import { abandoned } from '../../lib/async/batcher.ts';
import { findCapacity } from '../../store/sql/leases/capacity.ts';
import { readSeries, readSnapshot } from '../../store/sql/stats/read.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';

/** Maximum age of a snapshot sent on a stream. */
const sharedMs = watchMs.min / 2;

/** A reading that several streams share. */
interface Shared {
  begunAt: number;
  reading: Promise<Snapshot>;
}

/**
 * Reads statistics, and sends them to watchers.
 *
 * A single call gets a reading of its own, which contains all earlier commits. Watchers are served at the
 * same moments, so that one reading serves all that watch the same, whatever their number. A slow watcher
 * gets the current snapshot when it reads again; nothing is buffered for it.
 */
export class StatsQueries {
  readonly #context: EngineContext;
  readonly #stopping = new AbortController();
  readonly #shared = new Map<string | null, Shared>();

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** Ends all watches, so that a stopping server need not wait for them. */
  stop(): void {
    this.#stopping.abort(new DomainError('unavailable', 'the server is shutting down'));
  }

  snapshot(command: GetSnapshot, { signal }: Caller): Promise<Snapshot> {
    return this.#read(command.addon_id ?? null, signal);
  }

  async timeseries(command: GetTimeseries, { signal }: Caller): Promise<Timeseries> {
    const { database, settings } = this.#context;
    const metric = metrics[command.metric];
    const bucket = command.bucket ?? '5m';
    const addonId = command.addon_id ?? null;
    const plan = planSeries(bucket, command.range ?? '24h');
    if (metric.kind === 'usable' && addonId !== null) {
      throw invalid(
        'addon_id',
        `must be left out for ${command.metric}: capacity is for all submitters together`,
      );
    }
    const facts = await readSeries(database, metric, plan, addonId, signal);
    if (metric.kind === 'usable') {
      const { total, busyRating } = await findCapacity(database, settings.capacityTotal, signal);
      facts.current = usableUnits(total, busyRating);
    }
    return { metric: command.metric, bucket, addonId, points: seriesPoints(metric, plan, facts) };
  }

  /** Sends a snapshot at once and then at each interval, until the caller disconnects. */
  async *watch(command: WatchSnapshots, { signal }: Caller): AsyncGenerator<Snapshot> {
    const stopping = this.#stopping.signal;
    const until = signal ? AbortSignal.any([signal, stopping]) : stopping;
    const intervalMs = command.interval_ms ?? watchMs.default;
    const addonId = command.addon_id ?? null;
    const leave = this.#context.watchLimiter.enter();
    try {
      while (!until.aborted) {
        const snapshot = await orGone(this.#readShared(addonId), until);
        if (snapshot) yield snapshot;
        const now = performance.now();
        await pause(intervalMs - (now % intervalMs), until);
      }
    } finally {
      leave();
    }
    throw abandoned(until);
  }

  #readShared(addonId: string | null): Promise<Snapshot> {
    const now = performance.now();
    const known = this.#shared.get(addonId);
    if (known && now - known.begunAt < sharedMs) return known.reading;
    const shared = { begunAt: now, reading: this.#read(addonId) };
    this.#shared.set(addonId, shared);
    // A reading is dropped when it is too old to be sent.
    const forget = () => {
      if (this.#shared.get(addonId) === shared) this.#shared.delete(addonId);
    };
    shared.reading.then(() => setTimeout(forget, sharedMs).unref(), forget);
    return shared.reading;
  }

  async #read(addonId: string | null, signal?: AbortSignal): Promise<Snapshot> {
    const { database, settings } = this.#context;
    const facts = await readSnapshot(database, addonId, settings.capacityTotal, signal);
    const { total, busyRating, allUsed, gauges } = facts;
    const { failed_retried: retried, ...last24h } = facts.last24h;
    const { queued, claimed, running, used, reserved } = gauges;
    const usable = usableUnits(total, busyRating);
    return {
      tsMs: Math.floor(facts.nowMs),
      addonId,
      capacity: {
        total,
        busyRating,
        usable,
        used: addonId === null ? allUsed : used,
        available: usable - allUsed,
        reserved,
      },
      jobs: { queued, claimed, running },
      leases: { active: running },
      last24h: { ...last24h, failed: last24h.failed - retried },
    };
  }
}

/**
 * The reading, or undefined as soon as its watcher disconnects. A reading that others share is not canceled.
 */
function orGone<T>(reading: Promise<T>, until: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const leave = () => resolve(undefined);
    until.addEventListener('abort', leave, { once: true });
    const stay = () => until.removeEventListener('abort', leave);
    reading.then(resolve, reject).finally(stay);
  });
}

/** Settles after this time, or as soon as the watcher disconnects. */
function pause(ms: number, until: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      until.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    until.addEventListener('abort', done, { once: true });
    if (until.aborted) done();
  });
}

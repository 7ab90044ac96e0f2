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

/** How old a snapshot may be that is told on a stream. */
const sharedMs = watchMs.min / 2;

/** A reading that several streams are told. */
interface Shared {
  begunAt: number;
  reading: Promise<Snapshot>;
}

/**
 * Answers questions about how much there is, and tells it to those who watch.
 *
 * Whoever asks once gets a reading of their own, and finds in it all that was committed before. Those who watch are told at
 * the same moments, so that one reading serves all who watch the same, however many they are. One who is slow to read is
 * told what there is when they come for it, and nothing is kept for them meanwhile.
 */
export class StatsQueries {
  readonly #context: EngineContext;
  readonly #stopping = new AbortController();
  readonly #shared = new Map<string | null, Shared>();

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** Ends whoever watches, so that a server that stops need not wait for them. */
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

  /** Tells what there is, at once and then every so often, until the caller goes. */
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
    // What nobody may be told any more is not kept.
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

/** What was read, or nothing as soon as nobody waits for it any more: a reading that others share is not stopped. */
function orGone<T>(reading: Promise<T>, until: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const leave = () => resolve(undefined);
    until.addEventListener('abort', leave, { once: true });
    const stay = () => until.removeEventListener('abort', leave);
    reading.then(resolve, reject).finally(stay);
  });
}

/** Settles after so long, or as soon as nobody waits for it any more. */
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

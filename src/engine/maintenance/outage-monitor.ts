/**
 * Knows that servers have been alive all the time, or makes up for it.
 *
 * Promises: after a time in which no server was alive, or none could reach the database, no claim and no lease is judged
 * before all of them have been given back what they lost by it: once, by the length of the outage, and never more than a
 * claim or a heartbeat at its end would have given, nor beyond `max_runtime_s`. Every such outage is a row of the table
 * `outages`.
 *
 * Every server writes the time every `beatMs`. Whoever finds the last time older than `silenceMs` has found an outage, and
 * a server that starts has found one sooner.
 * Before anything is done that depends on what has expired, `fresh` is waited for: it costs nothing while this server's
 * own pulse is fresh, and is what holds things up after an outage. That is this server's view, which says nothing of a time
 * in which it or the database stood still; so whoever is about to call one expired asks the database as well (`isAwake`),
 * and beats once more if it says no. They are made up for in slices, each in its own
 * transaction, which another server may go on with if this one dies.
 */

import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { compensateOutage, recordLife } from '../../store/sql/outages.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { RoundMeter } from '../../telemetry/service-metrics.ts';

const beatMs = 1_000;
const staleMs = 2_000;
/** What a server that starts allows: had another been alive, it would have written the time a moment ago. */
const restartMs = 1_200;
/** Claims or leases of one transaction: their workers wait as long as it takes. */
const slice = 2_000;

export interface OutageMonitorOptions {
  database: Database;
  /** The longest that a claim holds without a word of its worker. */
  claimTtlMs: number;
  metrics: Metrics;
  log: Log;
}

export class OutageMonitor implements Service {
  readonly #options: OutageMonitorOptions;
  readonly #rounds: RoundMeter;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  /** When the last beat that came through was begun, by `performance.now()`. */
  #beatAt = Number.NEGATIVE_INFINITY;
  /** Beats that have failed since then. */
  #failed = 0;

  constructor(options: OutageMonitorOptions) {
    this.#options = options;
    this.#rounds = options.metrics.round('pulse');
  }

  start(): void {
    this.#timer ??= setInterval(() => {
      this.runOnce().catch((error: unknown) =>
        this.#options.log.warn('the pulse could not be written', { error }),
      );
    }, beatMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    await this.#beating?.catch(() => {});
  }

  /** The first beat of a server that starts, before it serves anybody. */
  begin(): Promise<void> {
    return this.#recordLife(restartMs);
  }

  /** Settles at once while the pulse is fresh; otherwise when it is again and what was lost has been made up for. */
  ensureFresh(): Promise<void> {
    return performance.now() - this.#beatAt < staleMs ? settled : this.runOnce();
  }

  /** Writes the time and makes up for an outage, if there was one. Many who ask at the same time share one beat. */
  runOnce(): Promise<void> {
    this.#beating ??= this.#rounds
      .time(() => this.#recordLife())
      .catch((error: unknown) => {
        this.#failed++;
        throw error;
      })
      .finally(() => {
        this.#beating = undefined;
      });
    return this.#beating;
  }

  async #recordLife(allowedMs?: number): Promise<void> {
    const { database, claimTtlMs, log } = this.#options;
    let begunAt = performance.now();
    const { outageMs, unfinished, synchronous } = await recordLife(database, allowedMs);
    database.noteReplication(synchronous);
    if (outageMs !== null) {
      // A server whose beats failed, or took that long, was alive: the database could not be reached. One that starts cannot know.
      const wasAlive = this.#failed > 0 || performance.now() - begunAt > staleMs;
      const isStart = allowedMs !== undefined;
      const cause = wasAlive ? 'no server reached the database' : 'no server was alive';
      const words = `${isStart ? 'no server was alive, or none reached the database,' : cause} for a while`;
      log.info(words, { outageMs: Math.round(outageMs) });
    }
    let left = unfinished;
    while (left) {
      // Each slice is a beat, too.
      begunAt = performance.now();
      const madeUp = await compensateOutage(database, slice, claimTtlMs);
      if (madeUp?.done)
        log.info('leases were given back what an outage took', { leases: madeUp.leasesExtended });
      left = madeUp !== undefined;
    }
    this.#beatAt = begunAt;
    this.#failed = 0;
  }
}

const settled = Promise.resolve();

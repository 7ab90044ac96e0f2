/**
 * Detects outages, which are times in which no server was alive or none could reach the database, and
 * compensates for them.
 *
 * Guarantees: after an outage no claim and no lease is decided before all of them have been extended by what
 * they lost.
 * - The extension is the length of the outage, once. It is never more than a claim or a heartbeat at its end
 *   would have given, and never beyond `max_runtime_s`.
 * - Every such outage is a row of the table `outages`.
 *
 * How it works: every server writes the time every `beatMs`. A server that finds the last time older than
 * `silenceMs` (see `store/sql/outages.ts`) has found an outage; a server that starts uses the shorter
 * `restartMs`. Everything that depends on expiry awaits `ensureFresh` first. It costs nothing while this
 * server's last write is recent, and waits after an outage. That is only this server's view, which does not
 * cover a time in which the server or the database stood still. Before a server expires anything it therefore
 * also asks the database (`isAwake`), and writes the time once more if the answer is no.
 *
 * Failure modes: compensation runs in slices, each in its own transaction. If this server dies, another
 * continues.
 */

import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { compensateOutage, recordLife } from '../../store/sql/outages.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { RoundMeter } from '../../telemetry/service-metrics.ts';

const beatMs = 1_000;
const staleMs = 2_000;
/**
 * The threshold of a starting server: if another server had been alive, it would have written the time a
 * moment ago.
 */
const restartMs = 1_200;
/** Claims or leases of one transaction; their workers wait as long as it takes. */
const slice = 2_000;

export interface OutageMonitorOptions {
  database: Database;
  /** The longest that a claim holds without a call of its worker. */
  claimTtlMs: number;
  metrics: Metrics;
  log: Log;
}

export class OutageMonitor implements Service {
  readonly #options: OutageMonitorOptions;
  readonly #rounds: RoundMeter;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  /** When the last successful write began, by `performance.now()`. */
  #beatAt = Number.NEGATIVE_INFINITY;
  /** Writes that have failed since then. */
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

  /** The first write of a starting server, before it serves calls. */
  begin(): Promise<void> {
    return this.#recordLife(restartMs);
  }

  /**
   * Settles at once while the last write is recent; otherwise after a new write and the compensation of any
   * outage.
   */
  ensureFresh(): Promise<void> {
    return performance.now() - this.#beatAt < staleMs ? settled : this.runOnce();
  }

  /** Writes the time and compensates for an outage, if there was one. Concurrent callers share one write. */
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
      // A server whose writes failed or took this long was alive, so the database was unreachable. A starting
      // server cannot know.
      const wasAlive = this.#failed > 0 || performance.now() - begunAt > staleMs;
      const isStart = allowedMs !== undefined;
      const cause = wasAlive ? 'no server reached the database' : 'no server was alive';
      const words = `${isStart ? 'no server was alive, or none reached the database,' : cause} for a while`;
      log.info(words, { outageMs: Math.round(outageMs) });
    }
    let left = unfinished;
    while (left) {
      // Each slice also writes the time.
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

/** Verdicts that nobody asked for: how leases stand that somebody other than their workers has changed. */
import type { Verdict } from '../../domain/leases/lease.ts';
import { waitingMax } from '../../engine/context/engine-context.ts';
import type { Heartbeats } from '../../engine/leases/heartbeats.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { splitByLength } from '../../lib/split-by-length.ts';
import type { Metrics } from '../../telemetry/metrics.ts';

/** Leases in one query. */
const leasesPerLookup = 1_000;

export type Lookups = Batcher<readonly string[], readonly Verdict[]>;

/** A thousand leases that expire together may be those of a thousand streams; they are looked up together, too. */
export const createLookups = (heartbeats: Pick<Heartbeats, 'verdictsOf'>, metrics?: Metrics): Lookups =>
  new Batcher({
    meter: metrics?.batch('look_at_leases'),
    flush: async (calls, signal) => {
      const verdicts = await heartbeats.verdictsOf(calls.flat(), signal);
      return splitByLength(
        verdicts,
        calls.map(({ length }) => length),
      );
    },
    sizeMax: leasesPerLookup,
    weigh: ({ length }) => length,
    weightMax: leasesPerLookup,
    waitingMax,
  });

export interface PushedVerdictsOptions {
  looks: Lookups;
  signal: AbortSignal | undefined;
  onFound(leaseIds: readonly string[], verdicts: readonly Verdict[]): void;
  /** Called after every query, whether it found anything or not. */
  onLooked(): void;
}

/**
 * What one stream is still to find out. Leases are told of with `add` and looked up with `callForLooking`, one query at
 * a time; those that are told of again meanwhile are looked up again. A query that fails is dropped, because the next
 * heartbeat tells the same, and fails for the same reason if there still is one. Stops with `clear`.
 */
export class PushedVerdicts {
  readonly #options: PushedVerdictsOptions;
  readonly #leaseIds = new Set<string>();
  #looking = false;

  constructor(options: PushedVerdictsOptions) {
    this.#options = options;
  }

  get isIdle(): boolean {
    return this.#leaseIds.size === 0 && !this.#looking;
  }

  add(leaseIds: readonly string[]): void {
    for (const leaseId of leaseIds) this.#leaseIds.add(leaseId);
  }

  clear(): void {
    this.#leaseIds.clear();
  }

  /** What is told of in this turn of the event loop is looked up together. */
  scheduleLookup(): void {
    if (this.#looking || this.#leaseIds.size === 0) return;
    this.#looking = true;
    setImmediate(() => void this.#lookUp());
  }

  async #lookUp(): Promise<void> {
    const { looks, signal, onFound, onLooked } = this.#options;
    const leaseIds = this.#take();
    try {
      if (leaseIds.length > 0) onFound(leaseIds, await looks.run(leaseIds, signal));
    } catch {
      // See above.
    } finally {
      this.#looking = false;
      onLooked();
    }
  }

  #take(): string[] {
    const taken: string[] = [];
    for (const leaseId of this.#leaseIds) {
      if (taken.length === leasesPerLookup) break;
      taken.push(leaseId);
      this.#leaseIds.delete(leaseId);
    }
    return taken;
  }
}

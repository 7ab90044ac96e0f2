/**
 * Verdicts that the server pushes without a heartbeat: the state of leases that an actor other than their
 * worker has changed.
 */
import type { Verdict } from '../../domain/leases/lease.ts';
import { waitingMax } from '../../engine/context/engine-context.ts';
import type { Engine } from '../../engine/engine.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { splitByLength } from '../../lib/split-by-length.ts';
import type { Metrics } from '../../telemetry/metrics.ts';

/** Leases in one query. */
const leasesPerLookup = 1_000;

export type Lookups = Batcher<readonly string[], readonly Verdict[]>;

/**
 * A thousand leases that expire together may belong to a thousand streams. One batch looks them up together.
 */
export const createLookups = (leases: Pick<Engine['leases'], 'verdictsOf'>, metrics?: Metrics): Lookups =>
  new Batcher({
    meter: metrics?.batch('look_at_leases'),
    flush: async (calls, signal) => {
      const verdicts = await leases.verdictsOf(calls.flat(), signal);
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
  /** Called after every query, even if the query fails. */
  onLooked(): void;
}

/**
 * The leases that one stream still has to look up.
 *
 * Guarantees: `add` records leases and `scheduleLookup` queries them, one query at a time. A lease that is
 * added again during a query is looked up again.
 *
 * Failure modes: a failed query is dropped. The next heartbeat returns the same verdict, or fails for the
 * same reason if that persists.
 *
 * Lifecycle: `clear` stops the lookups.
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

  /** Leases that are added in one turn of the event loop are looked up together. */
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
      // The class comment says why a failed query is dropped.
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

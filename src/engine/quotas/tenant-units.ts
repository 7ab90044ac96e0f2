/**
 * The units that tenants with a quota have left, in one transaction that takes units for them. It finds the
 * next jobs as `lockCandidates` does, and leaves out those that their tenant has no units for.
 *
 * Guarantees: the caller has locked the capacity. All transactions that take units of these tenants do, so
 * none of them takes units before this one has ended. A job that does not fit blocks the later jobs of its
 * tenant, and those of no other tenant.
 *
 * Failure modes: what was found and not taken still counts as taken until the transaction ends. The tenant
 * then gets less for a moment, never more.
 */
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { Sql } from '../../store/connection/sql.ts';
import {
  type LockedCandidate,
  type LockedCandidates,
  lockCandidates,
  type Wanted,
} from '../../store/sql/queue/candidates.ts';
import { addonsOf, readUnitsLeft } from '../../store/sql/quotas/quotas.ts';

export class TenantUnits {
  /** What each tenant with a quota has left. */
  readonly #left: Map<string, number>;
  /** Jobs whose units are taken from their tenant already. */
  readonly #taken = new Set<string>();
  /** A tenant had jobs that did not fit. */
  hasBlocked = false;

  private constructor(left: Map<string, number>) {
    this.#left = left;
  }

  /** Comes after the capacity is locked, and after all statements of the transaction that return units. */
  static async read(
    sql: Sql,
    addonIds: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<TenantUnits> {
    return new TenantUnits(await readUnitsLeft(sql, addonIds, signal));
  }

  /** Locks the next jobs that their tenants have units for, in their order. */
  async lockCandidates(
    sql: Sql,
    filter: ClaimFilter,
    wanted: Wanted,
    signal: AbortSignal | undefined,
  ): Promise<LockedCandidates> {
    const full = new Set<string>();
    const candidates = new Map<string, LockedCandidate>();
    // Each turn leaves out one more tenant at least.
    for (;;) {
      const fullAddons = full.size === 0 ? null : [...full].sort();
      const found = await lockCandidates(sql, { ...filter, fullAddons }, wanted, signal);
      const before = full.size;
      for (const candidate of await this.#fitting(sql, found.candidates, full, signal))
        candidates.set(candidate.jobId, candidate);
      const kept = [...candidates.values()];
      if (kept.length >= wanted.count) return { candidates: kept.slice(0, wanted.count), next: undefined };
      if (full.size === before) return { candidates: kept, next: found.next };
      this.hasBlocked = true;
    }
  }

  /** The candidates whose tenants have units for them. Adds tenants that have too few to `full`. */
  async #fitting(
    sql: Sql,
    candidates: readonly LockedCandidate[],
    full: Set<string>,
    signal: AbortSignal | undefined,
  ): Promise<LockedCandidate[]> {
    const addons = await addonsOf(
      sql,
      candidates.map(({ jobId }) => jobId),
      signal,
    );
    return candidates.filter(({ jobId, costUnits }) => {
      const addonId = addons.get(jobId);
      const left = addonId === undefined ? undefined : this.#left.get(addonId);
      if (addonId === undefined || left === undefined || this.#taken.has(jobId)) return true;
      if (full.has(addonId) || costUnits > left) {
        full.add(addonId);
        return false;
      }
      this.#left.set(addonId, left - costUnits);
      this.#taken.add(jobId);
      return true;
    });
  }
}

/** Why nothing is granted, where jobs wait that their tenant has no units for. */
export const tenantsFull = 'The jobs that are next exceed the quota of their tenant';

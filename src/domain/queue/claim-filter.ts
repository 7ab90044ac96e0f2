/** The jobs that a request accepts. Calls with the same filter share a statement. */
export interface ClaimFilter {
  /** Jobs of these streams, in this order of preference; null for jobs without a stream. */
  streams: readonly string[] | null;
  addonId: string | null;
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
  /** Submitters whose jobs are left out, because their quota is used up; only within one transaction. */
  fullAddons?: readonly string[] | null;
  /** The patterns of a credential that reaches only some submitters or types, for PostgreSQL's `like`. */
  scope?: { addonIds: readonly string[] | null; jobTypes: readonly string[] | null };
}

/** One statement serves the calls of a request class and gives all their leases one TTL. */
export const requestClassOf = (filter: ClaimFilter, ttlS: number | null): string =>
  ttlS === null ? JSON.stringify(filter) : JSON.stringify({ ...filter, ttlS });

/** The jobs that a request accepts. Calls with the same filter share a statement. */
export interface ClaimFilter {
  /** Jobs of these streams, in this order of preference; null for jobs without a stream. */
  streams: readonly string[] | null;
  addonId: string | null;
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
}

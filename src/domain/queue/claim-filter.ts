/** Which jobs suit. Calls with the same filter are served by one statement. */
export interface ClaimFilter {
  /** Jobs of these streams, the first before the second; null for jobs without one. */
  streams: readonly string[] | null;
  addonId: string | null;
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
}

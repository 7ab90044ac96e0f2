/** Work that a commit made available to waiting requests. */
export interface WorkAvailable {
  /** How many jobs became ready, by stream; '' stands for jobs without a stream. */
  readonly jobs: ReadonlyMap<string, number>;
  /** How many leases or jobs ended, so that other jobs may be granted. */
  readonly unitsFreed: number;
}

/** The available work: ready jobs of these streams, and freed units. */
export function workAvailableOf(streams: readonly (string | null)[], unitsFreed = 0): WorkAvailable {
  const jobs = new Map<string, number>();
  for (const stream of streams) jobs.set(stream ?? '', (jobs.get(stream ?? '') ?? 0) + 1);
  return { jobs, unitsFreed };
}

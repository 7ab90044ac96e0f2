/** What a commit has made possible for those who wait for work. */
export interface WorkAvailable {
  /** How many jobs came into the queue, by their streams; the empty one stands for none. */
  readonly jobs: ReadonlyMap<string, number>;
  /** How many leases or jobs are out of the way of others. */
  readonly unitsFreed: number;
}

/** The work that jobs of these streams are, and the room that something left. */
export function workAvailableOf(streams: readonly (string | null)[], unitsFreed = 0): WorkAvailable {
  const jobs = new Map<string, number>();
  for (const stream of streams) jobs.set(stream ?? '', (jobs.get(stream ?? '') ?? 0) + 1);
  return { jobs, unitsFreed };
}

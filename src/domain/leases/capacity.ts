import type { Capacity } from './lease.ts';

/** What the capacity's row says; the rest follows from it. */
export interface CapacityFacts {
  total: number;
  busyRating: number;
  used: number;
  reserved: number;
}

/** A tenth of all units goes for each point of the busy rating. */
export const usableUnits = (total: number, busyRating: number): number =>
  Math.floor((total * (10 - busyRating)) / 10);

export function capacityOf({ total, busyRating, used, reserved }: CapacityFacts): Capacity {
  const usable = usableUnits(total, busyRating);
  return { total, busyRating, usable, used, available: usable - used, reserved };
}

/** Why nothing is granted, in the request contract's sentence. */
export const noCapacity = ({ busyRating, usable, used }: Omit<Capacity, 'reserved'>): string =>
  `No capacity (busy=${busyRating}, usable=${usable}, leased=${used})`;

/** Why this job is not granted, in the queue contract's sentence. */
export const capacityExceeded = (
  { usable, used }: Pick<Capacity, 'usable' | 'used'>,
  requested: number,
): string => `Capacity exceeded: used=${used}, requested=${requested}, capacity=${usable}`;

export const noJobs = 'No jobs available';

/** What operators set of the capacity. */
export interface CapacitySetting {
  total: number;
  busyRating: number;
}

/** That the capacity was changed: by whom, when, and from what to what. */
export interface CapacityChange {
  changeId: string;
  atMs: number;
  requestedBy: string;
  reason: string | null;
  before: CapacitySetting;
  after: CapacitySetting;
}

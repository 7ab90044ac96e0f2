import type { Capacity } from './lease.ts';

/** The stored columns of the capacity row; all other figures are derived from them. */
export interface CapacityFacts {
  total: number;
  busyRating: number;
  used: number;
  reserved: number;
}

/** Each point of the busy rating takes away a tenth of all units. */
export const usableUnits = (total: number, busyRating: number): number =>
  Math.floor((total * (10 - busyRating)) / 10);

export function capacityOf({ total, busyRating, used, reserved }: CapacityFacts): Capacity {
  const usable = usableUnits(total, busyRating);
  return { total, busyRating, usable, used, available: usable - used, reserved };
}

/** Why nothing is granted, as the request contract words it. */
export const noCapacity = ({ busyRating, usable, used }: Omit<Capacity, 'reserved'>): string =>
  `No capacity (busy=${busyRating}, usable=${usable}, leased=${used})`;

/** Why this job is not granted, as the queue contract words it. */
export const capacityExceeded = (
  { usable, used }: Pick<Capacity, 'usable' | 'used'>,
  requested: number,
): string => `Capacity exceeded: used=${used}, requested=${requested}, capacity=${usable}`;

export const noJobs = 'No jobs available';

/** The part of the capacity that operators set. */
export interface CapacitySetting {
  total: number;
  busyRating: number;
}

/** A change of the capacity: its author, its time, and the settings before and after. */
export interface CapacityChange {
  changeId: string;
  atMs: number;
  requestedBy: string;
  reason: string | null;
  before: CapacitySetting;
  after: CapacitySetting;
}

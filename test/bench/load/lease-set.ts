/**
 * Leases that are seeded together. Everything about one follows from its number, so that a process need not remember a
 * million of them. Numbers are in the order of the rows in the store, and where rows lie decides what it costs to keep
 * them: a page that is changed for one lease is changed for its neighbours at little more.
 */
export interface LeaseSet {
  /** Tells the sets of a store apart; a part of every id. */
  set: number;
  leases: number;
  /** A worker holds so many of them, and keeps them with one frame. */
  perWorker: number;
  /**
   * What a worker holds lies side by side, as where it took all of it at once; otherwise as far apart as can be, as where
   * workers took one after another in turns.
   */
  inARow?: boolean;
  ttlS: number;
  /** How long they last before anybody has kept them, spread evenly. Their TTL where left out. */
  firstS?: { from: number; to: number };
}

export const workersOf = ({ leases, perWorker }: LeaseSet): number => Math.ceil(leases / perWorker);

/** The beginnings of ids look like those that a server gave long ago, so its own sort after them. */
export const idPrefix = (kind: 'lease' | 'job', set: number): string =>
  `${kind === 'lease' ? '0190' : '0180'}${set.toString(16).padStart(4, '0')}-0000-7000-8000-`;

export const workerPrefix = 'worker-';

export const workerName = (worker: number): string => `${workerPrefix}${worker}`;

const idOf = (kind: 'lease' | 'job', { set }: LeaseSet, lease: number): string =>
  idPrefix(kind, set) + lease.toString(16).padStart(12, '0');

export const leaseId = (set: LeaseSet, lease: number): string => idOf('lease', set, lease);
export const jobId = (set: LeaseSet, lease: number): string => idOf('job', set, lease);

export const workerOf = (set: LeaseSet, lease: number): string =>
  workerName(set.inARow ? Math.floor(lease / set.perWorker) : lease % workersOf(set));

/** The numbers of a worker's leases. */
export function leasesOf(set: LeaseSet, worker: number): number[] {
  const { leases, perWorker, inARow } = set;
  const step = inARow ? 1 : workersOf(set);
  const from = inARow ? worker * perWorker : worker;
  const to = inARow ? Math.min(from + perWorker, leases) : leases;
  const numbers: number[] = [];
  for (let lease = from; lease < to; lease += step) numbers.push(lease);
  return numbers;
}

/**
 * The numbers below `count` in an order in which neighbours come far apart. Nobody arranges for workers to call in the
 * order in which they got their work.
 */
export function scattered(count: number): number[] {
  let stride = Math.max(1, Math.round(count * goldenRatio));
  while (commonDivisor(stride, count) > 1) stride++;
  return Array.from({ length: count }, (_, i) => (i * stride) % count);
}

const goldenRatio = 0.618;

const commonDivisor = (a: number, b: number): number => (b === 0 ? a : commonDivisor(b, a % b));

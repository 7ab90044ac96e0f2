import type { LeaseSet } from './load/lease-set.ts';
import type { ClientKind } from './load/link.ts';
import type { Options } from './options.ts';

/** How much of everything a run does. */
export interface Sizes {
  client: ClientKind;
  /** Goals say something only about a whole run. */
  judged: boolean;
  warmUpMs: number;
  repeats: number;
  roundMs: number;
  /** Jobs that a round of claims takes. */
  claims: number;
  deepQueue: number;
  /** Jobs that a round of workers completes. */
  workerJobs: number;
  settleMs: number;
  idleMs: number;
  starts: number;
  /** Leases that are kept as fast as can be. */
  liveLeases: number;
  /** Whether what is under heartbeats is told of as well. */
  beatsFloor: boolean;
  loneBeats: number;
  /** Leases that are kept at their time, and for how long. */
  keptLeases: number;
  keepEveryMs: number;
  keepMs: number;
  keepWindowMs: number;
  /** How long seeded leases last until somebody keeps them: longer than seeding, starting and the first beats take. */
  keptFirstS: FirstS;
  /** Workers that reconnect, how often they keep their leases, and how long they are watched before and after. */
  workers: number;
  workersFirstS: FirstS;
  workerEveryMs: number;
  beforeMs: number;
  afterMs: number;
  /** Leases that run out, beside others that do not. */
  expiring: number;
  expiringFirstS: FirstS;
  expiringBeside: number;
  besideFirstS: FirstS;
  expiringForMs: number;
  /** What there is beside the figures that are read, and how often each is. */
  statsQueued: number;
  statsFinished: number;
  statsReads: number;
  /** Turns of each of two servers that are compared with each other, and how long those are. */
  turns: number;
  turnMs: number;
  /** Jobs that a round of the fastest drains carries out; slower ones are given a part of them. */
  drainJobs: number;
  /** Grants that a worker waits for. */
  loneGrants: number;
  /** What an old store has in it, how long a snapshot is kept open there, and the jobs of a round beside it. */
  oldQueued: number;
  oldFinished: number;
  oldMs: number;
  /** How long one works at half load, and how often it is looked how that goes. */
  halfLoadMs: number;
  halfLoadWindowMs: number;
}

type FirstS = LeaseSet['firstS'];

const whole = {
  warmUpMs: 4_000,
  repeats: 5,
  roundMs: 3_000,
  claims: 20_000,
  deepQueue: 1_000_000,
  workerJobs: 20_000,
  settleMs: 3_000,
  idleMs: 15_000,
  starts: 3,
  liveLeases: 40_000,
  beatsFloor: true,
  loneBeats: 300,
  keptLeases: 1_000_000,
  keepEveryMs: 30_000,
  keepMs: 90_000,
  keepWindowMs: 30_000,
  keptFirstS: { from: 75, to: 105 },
  workers: 10_000,
  workersFirstS: { from: 20, to: 40 },
  workerEveryMs: 2_000,
  beforeMs: 8_000,
  afterMs: 25_000,
  expiring: 2_000,
  // While these run out, the reaper finds the others due and kept.
  expiringFirstS: { from: 65, to: 85 },
  expiringBeside: 100_000,
  besideFirstS: { from: 60, to: 90 },
  expiringForMs: 90_000,
  statsQueued: 1_000_000,
  statsFinished: 2_000_000,
  statsReads: 200,
  turns: 20,
  turnMs: 1_500,
  drainJobs: 60_000,
  loneGrants: 300,
  oldQueued: 200_000,
  oldFinished: 500_000,
  oldMs: 30_000,
  halfLoadMs: 30_000,
  halfLoadWindowMs: 5_000,
};

/** A minute has room for no more. */
const short = {
  ...whole,
  warmUpMs: 1_500,
  repeats: 1,
  roundMs: 600,
  liveLeases: 20_000,
  beatsFloor: false,
  drainJobs: 10_000,
  loneGrants: 40,
};

/** Scenarios that share a store come to their leases whenever the others are done. */
const anHour = { from: 3_600, to: 3_600 };

const tiny = {
  warmUpMs: 0,
  repeats: 1,
  roundMs: 200,
  claims: 1_000,
  deepQueue: 5_000,
  workerJobs: 500,
  settleMs: 100,
  idleMs: 500,
  starts: 1,
  liveLeases: 6_400,
  beatsFloor: true,
  loneBeats: 20,
  keptLeases: 10_000,
  keepEveryMs: 400,
  keepMs: 400,
  keepWindowMs: 200,
  keptFirstS: anHour,
  workers: 400,
  workersFirstS: anHour,
  workerEveryMs: 200,
  beforeMs: 200,
  afterMs: 600,
  expiring: 50,
  expiringFirstS: { from: 0.1, to: 0.5 },
  expiringBeside: 1_000,
  besideFirstS: anHour,
  expiringForMs: 600,
  statsQueued: 2_000,
  statsFinished: 2_000,
  statsReads: 5,
  turns: 2,
  turnMs: 100,
  drainJobs: 500,
  loneGrants: 10,
  oldQueued: 1_000,
  oldFinished: 1_000,
  oldMs: 100,
  halfLoadMs: 500,
  halfLoadWindowMs: 250,
};

/** Short rounds, so that 11 pairs of one scenario end within two or three minutes. */
const inPairs = {
  ...whole,
  repeats: 11,
  roundMs: 2_000,
  claims: 30_000,
  deepQueue: 200_000,
};

/** Fewer pairs have no interval. */
const tinyInPairs = { ...tiny, repeats: 6 };

const full = {
  keepMs: 600_000,
  statsFinished: 10_000_000,
  oldQueued: 1_000_000,
  oldFinished: 10_000_000,
  oldMs: 600_000,
  halfLoadMs: 3_600_000,
  halfLoadWindowMs: 60_000,
};

export function sizesFor(options: Options): Sizes {
  const { smoke, client, repeats } = options;
  const chosen = options.against === undefined ? alone(options) : smoke ? tinyInPairs : inPairs;
  const sizes = { ...chosen, client, judged: !smoke };
  return repeats === undefined ? sizes : { ...sizes, repeats, starts: repeats, turns: 4 * repeats };
}

function alone({ smoke, quick, long }: Options) {
  if (smoke) return tiny;
  if (quick) return short;
  return long ? { ...whole, ...full } : whole;
}

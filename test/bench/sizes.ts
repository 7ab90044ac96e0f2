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
  drainJobs: number;
  settleMs: number;
  idleMs: number;
  starts: number;
  /** Leases that are kept as fast as can be. */
  liveLeases: number;
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
}

type FirstS = LeaseSet['firstS'];

const whole = {
  warmUpMs: 4_000,
  repeats: 5,
  roundMs: 3_000,
  claims: 20_000,
  deepQueue: 1_000_000,
  workerJobs: 20_000,
  drainJobs: 100_000,
  settleMs: 3_000,
  idleMs: 15_000,
  starts: 3,
  liveLeases: 40_000,
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
  drainJobs: 2_000,
  settleMs: 100,
  idleMs: 500,
  starts: 1,
  liveLeases: 6_400,
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
};

const longKeepMs = 600_000;

export function sizesFor({ smoke, long, client, repeats }: Options): Sizes {
  const sizes = { ...(smoke ? tiny : whole), client, judged: !smoke };
  if (long && !smoke) sizes.keepMs = longKeepMs;
  return repeats === undefined ? sizes : { ...sizes, repeats, starts: repeats, turns: 4 * repeats };
}

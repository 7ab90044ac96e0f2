/** The ways in which workers take work from our server and give it back done. */
import type { DrainOrder, DrainRound, Steady, SteadyOrder } from '../load/drain-tasks.ts';
import type { LoadProcess } from '../load-process.ts';
import type { Bench } from '../scenario.ts';

/** What one way is to reach where it is measured beside others; each the least. */
export interface DrainGoals {
  perSecond?: number;
  ofFastestPeer?: number;
  /** Of each peer in PostgreSQL as it comes. */
  ofDefaults?: number;
  ofFloor?: number;
}

export interface DrainWay {
  name: string;
  goals: DrainGoals;
  /** How much of a whole round's jobs it gets, so that its rounds last no longer than others'. */
  share: number;
  drain(load: LoadProcess, order: DrainOrder): Promise<DrainRound>;
  /** The same where jobs come at a pace. */
  steady(load: LoadProcess, order: SteadyOrder): Promise<Steady>;
}

const workers = 64;

const unary: DrainWay = {
  name: `AcquireLease and ReleaseLease, ${workers} workers`,
  goals: { ofDefaults: 2 },
  share: 0.3,
  drain: (load, order) => load.run('drainUnary', { ...order, workers }),
  steady: (load, order) => load.run('workSteadily', { ...order, workers }),
};

const streams = { streams: 4, credit: 1_000 };

const stream: DrainWay = {
  name: `StreamWork, ${streams.streams} workers with credit for ${streams.credit.toLocaleString('en')} jobs each`,
  goals: { perSecond: 42_000, ofFastestPeer: 1, ofFloor: 0.7 },
  share: 1,
  drain: (load, order) => load.run('drainStreams', { ...order, ...streams }),
  steady: (load, order) => load.run('streamSteadily', { ...order, ...streams }),
};

/** The fastest first, which is the one that is measured for long. */
export const drainWays: readonly [DrainWay, ...DrainWay[]] = [stream, unary];

/** Whole batches of a fill, and less than one where there is less. */
export function jobsOf({ sizes }: Pick<Bench, 'sizes'>, share: number): number {
  const jobs = Math.max(1, Math.round(sizes.drainJobs * share));
  return jobs < 1_000 ? jobs : Math.round(jobs / 1_000) * 1_000;
}

/** What is wrong with rounds of draining, if anything. */
export function faultsOf(rounds: readonly Pick<DrainRound, 'duplicates' | 'empty'>[]): string | undefined {
  const sum = (of: (round: Pick<DrainRound, 'duplicates' | 'empty'>) => number) =>
    rounds.reduce((total, round) => total + of(round), 0);
  const duplicates = sum((round) => round.duplicates);
  if (duplicates > 0) return `${duplicates} jobs were handed out twice`;
  const empty = sum((round) => round.empty);
  return empty > 0 ? `${empty} times there was nothing although jobs were queued` : undefined;
}

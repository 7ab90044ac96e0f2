/**
 * Those that do the same, by turns in one scenario: ours, other people's, and the floor under ours. A machine that gets
 * slower or faster meanwhile does so for all, so that their ratios, taken round by round, mean something where their rates do not.
 */
import { median } from './stats.ts';

export type Side = 'ours' | 'peer' | 'floor';

export interface Contender {
  name: string;
  side: Side;
  /** One a round; of all contenders in the same rounds. */
  rates: readonly number[];
}

export interface Contest {
  name: string;
  unit: string;
  contenders: readonly Contender[];
}

/** How many times as fast as another one of ours is, round by round. */
export interface Ratio {
  ours: string;
  to: string;
  side: Exclude<Side, 'ours'>;
  values: readonly number[];
}

/** One of ours to another. Where a contender missed a round, that round is left out. */
export const ratio = (ours: Contender, to: Contender): Ratio => ({
  ours: ours.name,
  to: to.name,
  side: to.side === 'floor' ? 'floor' : 'peer',
  values: ours.rates.slice(0, to.rates.length).map((rate, round) => rate / (to.rates[round] ?? Number.NaN)),
});

/** Each of ours to each other. */
export function ratios({ contenders }: Contest): Ratio[] {
  const ours = contenders.filter(({ side }) => side === 'ours');
  const others = contenders.filter(({ side }) => side !== 'ours');
  return ours.flatMap((one) => others.map((other) => ratio(one, other)));
}

/** Who of the others has the highest median. */
export function fastestPeer({ contenders }: Contest): Contender | undefined {
  const peers = contenders.filter(({ side }) => side === 'peer');
  return peers.reduce<Contender | undefined>(
    (best, one) => (best === undefined || median(one.rates) > median(best.rates) ? one : best),
    undefined,
  );
}

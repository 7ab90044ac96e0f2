/** What rounds that two trees played in pairs say about their ratio. */
import { median } from '../stats.ts';

export interface Interval {
  low: number;
  high: number;
}

export interface Estimate {
  /** One ratio for each pair. */
  values: readonly number[];
  median: number;
  /** Undefined where there are too few pairs for one. */
  interval: Interval | undefined;
}

/**
 * `below`: the whole interval lies below the bound. `undecided`: the interval contains the bound and is wider than 3 % of the
 * median to either side, or there is none. `holds`: otherwise.
 */
export type Verdict = 'holds' | 'below' | 'undecided';

const confidence = 0.95;
const halfWidthMax = 0.03;

/**
 * The exact interval of the median between two order statistics: the k-th value from either end, with the largest k whose
 * binomial coverage is 95 % at least. It assumes no distribution. Fewer than six values have none; of eleven it is the
 * second and the tenth, which cover the median with 98.8 %.
 */
export function medianInterval(values: readonly number[]): Interval | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  const count = sorted.length;
  let rank = 0;
  let probability = 2 ** -count;
  let tail = probability;
  while (2 * tail <= 1 - confidence) {
    rank++;
    probability *= (count - rank + 1) / rank;
    tail += probability;
  }
  const low = sorted[rank - 1];
  const high = sorted[count - rank];
  return low === undefined || high === undefined ? undefined : { low, high };
}

export const estimate = (values: readonly number[]): Estimate => ({
  values,
  median: median(values),
  interval: medianInterval(values),
});

/** Of rates, where more is better. */
export function verdictOf({ median, interval }: Omit<Estimate, 'values'>, bound: number): Verdict {
  if (!interval) return 'undecided';
  const { low, high } = interval;
  if (high < bound) return 'below';
  const isWide = (high - low) / 2 > halfWidthMax * median;
  return isWide && low <= bound ? 'undecided' : 'holds';
}

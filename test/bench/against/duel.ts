/** Pairs of rounds of the servers of two trees: this one and another. */
import type { EngineName } from '../../support/engines.ts';
import type { Untimed } from '../load/drive.ts';
import type { LoadProcess } from '../load-process.ts';
import { perSecond, type Sample } from '../measure.ts';
import type { Compared } from '../scenario.ts';
import type { Sizes } from '../sizes.ts';
import type { Stage } from '../stage.ts';
import { median } from '../stats.ts';
import { type Entrant, playRound } from '../turns.ts';
import { type Estimate, estimate, type Verdict, verdictOf } from './statistics.ts';

export const sides = ['own', 'other'] as const;
export type Side = (typeof sides)[number];
export type Pair<T> = Readonly<Record<Side, T>>;

/** One figure of both trees. */
export interface Comparison {
  scenario: string;
  name: string;
  unit: string;
  rates: Pair<readonly number[]>;
  medians: Pair<number>;
  /** Of rates, own to other: above 1, this tree is faster. */
  ratio: Estimate;
  /** Of server and database in µs for each operation; undefined where the system does not tell. */
  processor: Processor | undefined;
  bound: number;
  verdict: Verdict;
  failure: string | undefined;
}

export interface Processor {
  us: Pair<readonly number[]>;
  medians: Pair<number>;
  /** Own to other: below 1, this tree takes less. */
  ratio: Estimate;
  /** Medians of the server's part alone; the rest is the database's. */
  server: Pair<number>;
}

export interface Ring {
  engine: EngineName;
  sizes: Sizes;
  stage: Stage;
  load: LoadProcess;
}

/** What is the same of all figures of a scenario. */
export type Heading = Pick<Comparison, 'scenario' | 'bound'> & Pick<Compared, 'unit'>;

/**
 * Plays a pair that is not counted, then as many as are wanted. The server that begins changes from pair to pair, so that
 * what the order does to a round cancels.
 */
export async function duel(ring: Ring, heading: Heading, entrants: Pair<Entrant>): Promise<Comparison> {
  const taken: Record<Side, Sample<Untimed>[]> = { own: [], other: [] };
  for (let pair = -1; pair < ring.sizes.repeats; pair++) {
    for (const side of orderOf(pair)) {
      const round = await playRound(ring, entrants[side], 1);
      if (round.done === 0) throw new Error(`a round of '${entrants[side].name}' did nothing`);
      if (pair >= 0) taken[side].push(round);
    }
  }
  return compare(heading, entrants, taken);
}

export const orderOf = (pair: number): readonly Side[] => (pair % 2 === 0 ? sides : [...sides].reverse());

export function compare(
  heading: Heading,
  entrants: Pair<Pick<Entrant, 'name' | 'failure'>>,
  taken: Pair<readonly Sample<Untimed>[]>,
): Comparison {
  const rates = both((side) => taken[side].map(perSecond));
  const ratio = estimate(ratiosOf(rates));
  return {
    ...heading,
    name: entrants.own.name,
    rates,
    medians: both((side) => median(rates[side])),
    ratio,
    processor: processorOf(taken),
    verdict: verdictOf(ratio, heading.bound),
    failure: failureOf(entrants),
  };
}

const usEach = ({ serverCpuMs = Number.NaN, databaseCpuMs = Number.NaN, done }: Sample<Untimed>): number =>
  ((serverCpuMs + databaseCpuMs) * 1_000) / done;

const serverUsEach = ({ serverCpuMs = Number.NaN, done }: Sample<Untimed>): number =>
  (serverCpuMs * 1_000) / done;

/** A round that took none, as a very short one may, says nothing. */
function processorOf(taken: Pair<readonly Sample<Untimed>[]>): Processor | undefined {
  const us = both((side) => taken[side].map(usEach));
  if (![...us.own, ...us.other].every((each) => each > 0)) return undefined;
  return {
    us,
    medians: both((side) => median(us[side])),
    ratio: estimate(ratiosOf(us)),
    server: both((side) => median(taken[side].map(serverUsEach))),
  };
}

const ratiosOf = ({ own, other }: Pair<readonly number[]>): number[] =>
  own.map((value, pair) => value / (other[pair] ?? Number.NaN));

function failureOf(entrants: Pair<Pick<Entrant, 'failure'>>): string | undefined {
  const { own, other } = both((side) => entrants[side].failure?.());
  if (own !== undefined) return `this tree: ${own}`;
  return other === undefined ? undefined : `the other tree: ${other}`;
}

export const both = <T>(of: (side: Side) => T): Pair<T> => ({ own: of('own'), other: of('other') });

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
  settleMs: number;
  idleMs: number;
  starts: number;
}

const whole = {
  warmUpMs: 4_000,
  repeats: 5,
  roundMs: 3_000,
  claims: 20_000,
  deepQueue: 1_000_000,
  settleMs: 3_000,
  idleMs: 15_000,
  starts: 3,
};

const tiny = {
  warmUpMs: 0,
  repeats: 1,
  roundMs: 200,
  claims: 1_000,
  deepQueue: 5_000,
  settleMs: 100,
  idleMs: 500,
  starts: 1,
};

export function sizesFor({ smoke, client, repeats }: Options): Sizes {
  const sizes = { ...(smoke ? tiny : whole), client, judged: !smoke };
  return repeats === undefined ? sizes : { ...sizes, repeats, starts: repeats };
}

/** Rounds by turns, and what comes of them: a line for each contender, the ratios that are asked for, and a contest to tell of. */
import type { Contender, Contest, Side } from './contest.ts';
import type { Untimed } from './load/drive.ts';
import { perSecond, type Sample, sample, throughput } from './measure.ts';
import type { Bench, Figure } from './scenario.ts';

/** Somebody who takes part. */
export interface Entrant {
  name: string;
  side: Side;
  /** Whose processor time is told beside the load's and the database's. */
  server?: { pid: number } | undefined;
  goal?: Figure['goal'];
  /** What has to be there before a round, in rounds of this length. */
  prepare?(share: number): Promise<void>;
  /** A round; a warm-up is a smaller share of one. */
  play(share: number): Promise<Untimed>;
  /** What is wrong with its rounds, if anything. */
  failure?(): string | undefined;
}

/** So much of a round goes before the first one. */
const warmUpShare = 0.25;

export async function playByTurns(
  bench: Bench,
  { name, unit }: Pick<Contest, 'name' | 'unit'>,
  entrants: readonly Entrant[],
): Promise<Contest> {
  const { warmUpMs, repeats } = bench.sizes;
  const taken = new Map<Entrant, Sample<Untimed>[]>(entrants.map((entrant) => [entrant, []]));
  for (let round = warmUpMs > 0 ? -1 : 0; round < repeats; round++) {
    const share = round < 0 ? warmUpShare : 1;
    for (const entrant of entrants) {
      const played = await playRound(bench, entrant, share);
      if (round >= 0) taken.get(entrant)?.push(played);
    }
  }
  const contenders = entrants.map((entrant): Contender => {
    const rounds = taken.get(entrant) ?? [];
    bench.report({ ...throughput(entrant.name, unit, rounds, entrant.goal), failure: entrant.failure?.() });
    return { name: entrant.name, side: entrant.side, rates: rounds.map(perSecond) };
  });
  const contest = { name, unit, contenders };
  bench.compare(contest);
  return contest;
}

/** Rounds of an entrant that has no other beside it, as a line of the report. */
export async function playAlone(bench: Bench, unit: string, entrant: Entrant): Promise<void> {
  const { warmUpMs, repeats, roundMs } = bench.sizes;
  const taken: Sample<Untimed>[] = [];
  if (warmUpMs > 0) await playRound(bench, entrant, warmUpMs / roundMs);
  for (let i = 0; i < repeats; i++) taken.push(await playRound(bench, entrant, 1));
  bench.report({ ...throughput(entrant.name, unit, taken, entrant.goal), failure: entrant.failure?.() });
}

/** What has to be there comes first, and is not a part of the round. */
export async function playRound(
  bench: Pick<Bench, 'stage'>,
  entrant: Entrant,
  share: number,
): Promise<Sample<Untimed>> {
  await entrant.prepare?.(share);
  return sample(bench, entrant.server, () => entrant.play(share));
}

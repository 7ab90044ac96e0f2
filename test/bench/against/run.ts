/** A whole run with `--against`: scenario after scenario, with servers and stores of their own. */
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { LoadProcess } from '../load-process.ts';
import type { Options } from '../options.ts';
import type { Compared, Scenario, Served } from '../scenario.ts';
import { sizesFor } from '../sizes.ts';
import { Stage, startServer } from '../stage.ts';
import { both, type Comparison, duel, type Pair, type Ring, type Side } from './duel.ts';
import { comparisonText } from './report.ts';
import { loadFileOf, openTree, type Tree } from './tree.ts';

/** The root of this tree: what starts it is read of its package as well. */
const ownFolder = fileURLToPath(new URL('../../../', import.meta.url));

export interface AgainstOutcome {
  comparisons: Comparison[];
  /** Scenarios and figures that failed, whatever their rates are. */
  failures: number;
}

export type AgainstOptions = Options & { against: string };

interface Run {
  ring: Ring;
  trees: Pair<Tree>;
  options: AgainstOptions;
  print: (text: string) => void;
}

type ComparedScenario = Scenario & { compared: Compared };

export const isCompared = (scenario: Scenario): scenario is ComparedScenario =>
  scenario.compared !== undefined;

export async function runAgainst(
  options: AgainstOptions,
  scenarios: readonly Scenario[],
  print: (text: string) => void,
  isInterrupted: () => boolean,
): Promise<AgainstOutcome> {
  const trees = { own: openTree(ownFolder), other: openTree(options.against) };
  const engine = 'postgresql';
  const stage = await Stage.open(engine);
  print(`${stage.title}, ${availableParallelism()} cores for everything, client ${options.client}`);
  print(`this tree against ${trees.other.folder}, ${sizesFor(options).repeats} pairs of rounds`);
  const outcome: AgainstOutcome = { comparisons: [], failures: 0 };
  for (const scenario of scenarios.filter(isCompared)) {
    if (options.only?.includes(scenario.name) === false) continue;
    const load = await LoadProcess.start();
    const ring: Ring = { engine, sizes: sizesFor(options), stage, load };
    try {
      await runScenario({ ring, trees, options, print }, scenario, outcome);
    } catch (error) {
      if (isInterrupted()) return outcome;
      outcome.failures++;
      print(`  FAILED: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    } finally {
      await load.stop();
    }
  }
  await stage.close();
  return outcome;
}

async function runScenario(run: Run, scenario: ComparedScenario, outcome: AgainstOutcome): Promise<void> {
  run.print(`${scenario.name}: ${scenario.about}`);
  const own = await serve(run, scenario, 'own');
  try {
    const other = await serve(run, scenario, 'other');
    try {
      await playAll(run, scenario, { own, other }, outcome);
    } finally {
      await other.server.stop();
    }
  } finally {
    await own.server.stop();
  }
}

async function playAll(
  { ring, options, print }: Run,
  { name, compared }: ComparedScenario,
  served: Pair<Served>,
  outcome: AgainstOutcome,
): Promise<void> {
  const entrants = both((side) => compared.entrants(ring, served[side]));
  const heading = { scenario: name, unit: compared.unit, bound: options.bound };
  for (const [at, own] of entrants.own.entries()) {
    const other = entrants.other[at];
    if (!other) throw new Error('the trees play different figures');
    const comparison = await duel(ring, heading, { own, other });
    print(comparisonText(comparison));
    outcome.comparisons.push(comparison);
    if (comparison.failure !== undefined) outcome.failures++;
  }
  await ring.load.run('close');
}

/** A server of one tree on a fresh store, with the scenario's leases in it. */
async function serve({ ring, trees, options }: Run, scenario: Scenario, side: Side): Promise<Served> {
  const tree = trees[side];
  const store = await ring.stage.newStore();
  const leases = scenario.leases?.(ring.sizes) ?? [];
  if (leases.length > 0) {
    const seeding = await LoadProcess.start(loadFileOf(tree));
    try {
      await seeding.run('seedLeases', [store.place, leases]);
    } finally {
      await seeding.stop();
    }
    await store.vacuum();
  }
  const profile = options.profile ? `${scenario.name}-${side}` : undefined;
  const keys = side === 'own' && options.keys;
  return { store, server: await startServer(store, profile, { program: tree.program, keys }) };
}

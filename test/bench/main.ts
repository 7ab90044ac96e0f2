/** `npm run bench`: see `--help`. */
import { writeFile } from 'node:fs/promises';
import { availableParallelism, cpus } from 'node:os';
import { cleanUp } from '../support/cleanup.ts';
import type { EngineName } from '../support/engines.ts';
import { comparisonsText } from './against/report.ts';
import { type AgainstOptions, isCompared, runAgainst } from './against/run.ts';
import type { Contest } from './contest.ts';
import type { LeaseSet } from './load/lease-set.ts';
import { LoadProcess } from './load-process.ts';
import { help, type Options, readOptions, UsageError } from './options.ts';
import { peerVersions } from './peers/list.ts';
import { type FigureRecord, figureRecord, figureText } from './report.ts';
import type { Bench, Figure, Scenario, Served } from './scenario.ts';
import { claim } from './scenarios/claim.ts';
import { drainOld } from './scenarios/drain-old.ts';
import { etcd } from './scenarios/etcd.ts';
import { expiry } from './scenarios/expiry.ts';
import { files } from './scenarios/files.ts';
import { commits, drainRaw } from './scenarios/floors.ts';
import { halfLoad } from './scenarios/half-load.ts';
import { heartbeatFrames, heartbeatLone, heartbeatSingly, heartbeatUnary } from './scenarios/heartbeat.ts';
import { idle } from './scenarios/idle.ts';
import { metricsCost } from './scenarios/metrics-cost.ts';
import { heartbeatMillion, millionByTurns } from './scenarios/million.ts';
import { peersDrain } from './scenarios/peers-drain.ts';
import { peersSubmit } from './scenarios/peers-submit.ts';
import { prune } from './scenarios/prune.ts';
import { reconnect } from './scenarios/reconnect.ts';
import { start } from './scenarios/start.ts';
import { stats } from './scenarios/stats.ts';
import { submitBatches, submitRest, submitSingly } from './scenarios/submit.ts';
import { submitToGrant } from './scenarios/submit-to-grant.ts';
import { workerRest, workerWaiting } from './scenarios/worker.ts';
import type { ServerProcess } from './server-process.ts';
import { sizesFor } from './sizes.ts';
import { profileFolder, Stage, type Store, startServer } from './stage.ts';
import { ratioRecords, summaryText } from './summary.ts';

// The idle one goes first: a smoke run shares its server, and later it would not be fresh any more.
const scenarios: readonly Scenario[] = [
  idle,
  peersDrain,
  peersSubmit,
  submitToGrant,
  drainRaw,
  commits,
  submitBatches,
  submitSingly,
  submitRest,
  claim,
  heartbeatFrames,
  etcd,
  heartbeatSingly,
  heartbeatLone,
  heartbeatUnary,
  heartbeatMillion,
  millionByTurns,
  reconnect,
  expiry,
  workerRest,
  workerWaiting,
  files,
  prune,
  stats,
  metricsCost,
  start,
  drainOld,
  halfLoad,
];

let interrupted = false;
/** How the run ends where something does not work. */
let failedCode = 1;

const print = (text: string) => process.stdout.write(`${text}\n`);

interface Outcome {
  records: FigureRecord[];
  contests: Contest[];
  notes: string[];
  failures: number;
}

/** What one engine's scenarios have in common. */
interface Setting {
  stage: Stage;
  options: Options;
  outcome: Outcome;
  shared: Promise<Served> | undefined;
  /** The load process that the next scenario of a smoke run goes on with: most of what one takes is being started. */
  load: LoadProcess | undefined;
}

async function runScenario(scenario: Scenario, setting: Setting): Promise<void> {
  const { stage, options, outcome } = setting;
  print(`${scenario.name}: ${scenario.about}`);
  const load = setting.load ?? (await LoadProcess.start());
  setting.load = undefined;
  const own: ServerProcess[] = [];
  const serve: Bench['serve'] = async (store, name = scenario.name, how = { unmetered: false }) => {
    const server = await startServer(store, options.profile ? `${stage.engine}-${name}` : undefined, how);
    own.push(server);
    return server;
  };
  const bench: Bench = {
    engine: stage.engine,
    sizes: sizesFor(options),
    stage,
    load,
    serve,
    someServer: (name) => (options.smoke ? sharedServer(setting, load) : bench.ownServer(name)),
    async ownServer(name) {
      const store = await stage.newStore();
      await seed(store, scenario.leases?.(bench.sizes) ?? [], load);
      return { store, server: await serve(store, name) };
    },
    async stopServers() {
      await Promise.all(own.map((server) => server.stop()));
    },
    report(figure: Figure) {
      print(figureText(figure));
      outcome.records.push(figureRecord(scenario.name, stage.engine, figure));
      if (figure.failure !== undefined) outcome.failures++;
    },
    compare: (contest) => void outcome.contests.push(contest),
    note(line) {
      print(`  ${line}`);
      if (!outcome.notes.includes(line)) outcome.notes.push(line);
    },
  };
  try {
    await scenario.run(bench);
    await load.run('close');
    // One whose scenario failed may be busy still.
    if (options.smoke) setting.load = load;
  } finally {
    if (setting.load === undefined) await load.stop();
    await bench.stopServers();
  }
}

/** Nobody but the server can open an embedded store, so all that scenarios want to find there comes before it. */
async function seed(store: Store, sets: readonly LeaseSet[], load: LoadProcess): Promise<void> {
  if (sets.length === 0) return;
  await load.run('seedLeases', [store.place, sets]);
  await store.vacuum();
}

function sharedServer(setting: Setting, load: LoadProcess): Promise<Served> {
  const { stage, options } = setting;
  setting.shared ??= (async () => {
    const store = await stage.newStore();
    const sizes = sizesFor(options);
    const wanted = scenarios.filter((scenario) => isWanted(scenario, stage.engine, options));
    await seed(
      store,
      wanted.flatMap((scenario) => scenario.leases?.(sizes) ?? []),
      load,
    );
    const server = await startServer(store, options.profile ? `${stage.engine}-smoke` : undefined);
    return { store, server };
  })();
  return setting.shared;
}

function isWanted(scenario: Scenario, engine: EngineName, options: Options): boolean {
  const { name, engines, smokeEngines, quick } = scenario;
  const able = options.smoke ? (smokeEngines ?? engines) : engines;
  if (!able.includes(engine)) return false;
  return options.only?.includes(name) ?? (!options.quick || quick === true);
}

async function runEngine(engine: EngineName, options: Options, outcome: Outcome): Promise<void> {
  const stage = await Stage.open(engine);
  print(`\n${stage.title}, ${availableParallelism()} cores for everything, client ${options.client}`);
  const setting: Setting = { stage, options, outcome, shared: undefined, load: undefined };
  for (const scenario of scenarios) {
    if (!isWanted(scenario, engine, options)) continue;
    if (interrupted) return;
    try {
      await runScenario(scenario, setting);
    } catch (error) {
      // Whoever interrupts a run knows why it ends.
      if (interrupted) return;
      outcome.failures++;
      print(`  FAILED: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    }
  }
  await setting.shared?.then(
    ({ server }) => server.stop(),
    () => {},
  );
  await setting.load?.stop();
  await stage.close();
}

const machine = { cores: availableParallelism(), processor: cpus()[0]?.model, node: process.version };

const recordOf = async ({ records, contests, notes }: Outcome) => ({
  machine,
  peers: await peerVersions(),
  figures: records,
  ratios: ratioRecords(contests),
  notes,
});

async function main(): Promise<number> {
  const names = scenarios.map(({ name }) => name);
  const comparedNames = scenarios.filter(isCompared).map(({ name }) => name);
  const options = readOptions(process.argv.slice(2), names, comparedNames);
  const { against } = options;
  if (options.help) {
    process.stdout.write(help(scenarios, comparedNames));
    return 0;
  }
  if (against !== undefined) return mainAgainst({ ...options, against });
  const outcome: Outcome = { records: [], contests: [], notes: [], failures: 0 };
  for (const engine of options.engines) await runEngine(engine, options, outcome);
  print(`\n${summaryText(outcome)}`);
  for (const note of outcome.notes) print(`\n${note}`);
  await leave(options, await recordOf(outcome));
  print(`\n${outcome.records.length} figures, ${outcome.failures} failures`);
  return outcome.failures === 0 ? 0 : 1;
}

async function mainAgainst(options: AgainstOptions): Promise<number> {
  // 1 is for a figure that is below the bound.
  failedCode = 3;
  const { against, bound } = options;
  const { comparisons, failures } = await runAgainst(options, scenarios, print, () => interrupted);
  print(`\n${comparisonsText(comparisons)}`);
  await leave(options, { machine, against, bound, comparisons });
  const below = comparisons.filter(({ verdict }) => verdict === 'below').length;
  print(`\n${comparisons.length} figures, ${below} below ${bound}, ${failures} failures`);
  if (failures > 0) return failedCode;
  return below > 0 ? 1 : 0;
}

/** Writes what is asked for, and says where it is. */
async function leave({ json, profile }: Options, record: object): Promise<void> {
  if (json !== undefined) {
    await writeFile(json, JSON.stringify(record, null, 2));
    print(`\nfigures: ${json}`);
  }
  if (profile) print(`\nprofiles: ${await profileFolder()}`);
}

for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const) {
  process.once(signal, () => {
    interrupted = true;
    void cleanUp().finally(() => process.exit(code));
  });
}

try {
  process.exitCode = await main();
} catch (error) {
  const words = error instanceof UsageError ? `${error.message}; see --help` : error;
  process.stderr.write(`bench: ${words instanceof Error ? words.stack : words}\n`);
  process.exitCode = error instanceof UsageError ? 2 : failedCode;
} finally {
  for (const failure of await cleanUp()) process.stderr.write(`bench: ${failure.stack}\n`);
}

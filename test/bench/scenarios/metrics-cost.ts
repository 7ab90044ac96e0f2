import type { Round } from '../load/drive.ts';
import { perSecond, type Sample, sample } from '../measure.ts';
import type { Bench, Scenario } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';
import { lossesIn, sets } from './lease-sets.ts';

const inFlight = 64;
const connections = 4;
const streams = 8;
const framesPerStream = 16;
/** Of a rate, and of processor time. */
const rateGoal = 0.98;
const processorGoal = 1.02;

/** A load that either server can take a turn of. */
interface Load {
  name: string;
  /** What has to be there for a turn of each, made by the one that begins. */
  prepare?(first: ServerProcess): Promise<unknown>;
  turn(server: ServerProcess): Promise<Round>;
}

type Pair = Readonly<Record<'metered' | 'unmetered', ServerProcess>>;

/**
 * What it costs to count. Two servers share a database and take short turns with the same load, one that counts and is
 * read after each turn, and one in which nothing counts. Who begins changes from turn to turn, so that a machine that gets slower
 * or faster meanwhile does so for both. Processor time says it more exactly than the rate, which the database has a
 * part in.
 */
export const metricsCost: Scenario = {
  name: 'metrics-cost',
  about: `ClaimJobs and Heartbeat with ${inFlight} in flight, and frames of 50 heartbeats, with metrics and without, in turns`,
  engines: ['postgresql'],
  leases: (sizes) => [sets.metered(sizes)],
  async run(bench) {
    const { server: metered, store } = await bench.someServer();
    const unmetered = await bench.serve(store, 'metrics-cost-without', { unmetered: true });
    const pair = { metered, unmetered };
    for (const load of [claims(bench), heartbeats(bench), frames(bench)]) await compare(bench, pair, load);
    await checkCounts(pair);
  },
};

async function compare(bench: Bench, pair: Pair, load: Load): Promise<void> {
  const { turns, judged } = bench.sizes;
  const rates: number[] = [];
  const processor: number[] = [];
  for (let i = judged ? -2 : 0; i < turns; i++) {
    const order = i % 2 === 0 ? (['metered', 'unmetered'] as const) : (['unmetered', 'metered'] as const);
    await load.prepare?.(pair[order[0]]);
    const taken: Partial<Record<keyof Pair, Sample>> = {};
    for (const who of order) {
      taken[who] = await sample(bench, pair[who], () => load.turn(pair[who]));
      if (who === 'metered') await read(pair[who]);
    }
    // The first turns warm up.
    if (i < 0 || !taken.metered || !taken.unmetered) continue;
    rates.push(perSecond(taken.metered) / perSecond(taken.unmetered));
    processor.push(serverMs(taken.metered) / serverMs(taken.unmetered));
  }
  bench.report({
    name: `${load.name}, with metrics`,
    unit: 'of the rate without',
    values: rates,
    goal: judged ? { atLeast: rateGoal } : undefined,
  });
  bench.report({
    name: '  processor time of the server',
    unit: 'of that without',
    values: processor,
    goal: judged ? { below: processorGoal } : undefined,
  });
}

const serverMs = ({ serverCpuMs = Number.NaN, done }: Sample): number => serverCpuMs / done;

async function read({ http }: ServerProcess): Promise<string> {
  const answer = await fetch(`${http}/metrics`);
  if (!answer.ok) throw new Error(`/metrics answered ${answer.status}`);
  return answer.text();
}

/** Nothing would be cheaper than to compare two servers that both count, or of which neither does. */
async function checkCounts({ metered, unmetered }: Pair): Promise<void> {
  const counts = /^leasehold_(rpc_requests_total|batch_calls_count|database_duration_seconds_count)\{/m;
  if (!counts.test(await read(metered))) throw new Error('the server with metrics has counted nothing');
  if (counts.test(await read(unmetered))) throw new Error('the server without metrics has counted');
}

const targetOf = ({ sizes: { client } }: Bench, { grpc }: ServerProcess) => ({
  address: grpc,
  client,
  connections,
});

function claims(bench: Bench): Load {
  const { load, sizes } = bench;
  const jobs = Math.ceil(sizes.claims / 2);
  return {
    name: `ClaimJobs, ${inFlight} claimers`,
    prepare: (first) => load.run('fill', { target: targetOf(bench, first), jobs: 2 * jobs }),
    async turn(server) {
      const round = await load.run('claim', { target: targetOf(bench, server), claimers: inFlight, jobs });
      if (round.empty + round.duplicates > 0)
        throw new Error(
          `of ${jobs} claims ${round.empty} got nothing and ${round.duplicates} a job of another`,
        );
      return round;
    },
  };
}

function heartbeats(bench: Bench): Load {
  const { load, sizes } = bench;
  const on = { set: sets.metered(sizes), inFlight, durationMs: sizes.turnMs };
  return {
    name: `Heartbeat, ${inFlight} in flight`,
    turn: (server) => load.run('beatUnary', { ...on, target: targetOf(bench, server) }),
  };
}

function frames(bench: Bench): Load {
  const { load, sizes } = bench;
  const on = { set: sets.metered(sizes), inFlight: framesPerStream, durationMs: sizes.turnMs };
  return {
    name: `frames of 50, ${streams} streams`,
    async turn(server) {
      const round = await load.run('beatFrames', { ...on, target: { ...targetOf(bench, server), streams } });
      const losses = lossesIn([round]);
      if (losses !== undefined) throw new Error(losses);
      return round;
    },
  };
}

import type { ClaimRound } from '../load/tasks.ts';
import { perSecond, rateGoal, type Sample, sample, throughput } from '../measure.ts';
import type { Bench, Playing, Scenario, Served } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';
import type { Entrant } from '../turns.ts';

const claimers = 64;
const connections = 4;
const deepRatio = 0.8;

interface Queue {
  server: ServerProcess;
  taken: (ClaimRound & Sample)[];
}

/**
 * Claims from a short queue and from a long one. Each has a server and a store of its own and they take turns, so that a
 * machine that gets slower or faster meanwhile does so for both, and their ratio means something.
 */
export const claim: Scenario = {
  name: 'claim',
  about: `ClaimJobs by ${claimers} claimers, one job each; the same with a million jobs queued`,
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { sizes, load } = bench;
    const { claims, repeats, warmUpMs } = sizes;
    const targetOf = ({ server }: Queue) => ({ address: server.grpc, client: sizes.client, connections });
    const open = async (name: string, jobs: number): Promise<Queue> => {
      const { server, store } = await bench.someServer(name);
      const queue: Queue = { server, taken: [] };
      await load.run('fill', { target: targetOf(queue), jobs });
      await store.vacuum();
      return queue;
    };
    const short = await open('claim', 2 * claims);
    const long = await open('claim-deep', sizes.deepQueue);
    const play = (queue: Queue) =>
      sample(bench, queue.server, () =>
        load.run('claim', { target: targetOf(queue), claimers, jobs: claims }),
      );
    for (let round = warmUpMs > 0 ? -1 : 0; round < repeats; round++) {
      for (const queue of [short, long]) {
        const taken = await play(queue);
        if (round >= 0 || taken.duplicates > 0) queue.taken.push(taken);
      }
      await load.run('fill', { target: targetOf(short), jobs: claims });
    }
    report(bench, short, long);
    await bench.stopServers();
    await floor(bench);
  },
  compared: {
    unit: 'jobs/s',
    entrants: (bench, served) => [
      claiming(bench, served, names.short, 2 * bench.sizes.claims),
      claiming(bench, served, names.long(bench), bench.sizes.deepQueue),
    ],
  },
};

/** Claims from a queue that has the same length before each round. */
function claiming(bench: Playing, { server, store }: Served, name: string, queued: number): Entrant {
  const { load, sizes } = bench;
  const target = { address: server.grpc, client: sizes.client, connections };
  const taken: ClaimRound[] = [];
  return {
    name,
    side: 'ours',
    server,
    async prepare() {
      const jobs = taken.length === 0 ? queued : sizes.claims;
      await load.run('fill', { target, jobs });
      if (taken.length === 0) await store.vacuum();
    },
    async play() {
      const round = await load.run('claim', { target, claimers, jobs: sizes.claims });
      taken.push(round);
      return round;
    },
    failure: () => failureOf({ taken }),
  };
}

const names = {
  short: `ClaimJobs, ${claimers} claimers`,
  long: ({ sizes }: Pick<Bench, 'sizes'>) => `the same, ${sizes.deepQueue.toLocaleString('en')} queued`,
};

function report(bench: Bench, short: Queue, long: Queue): void {
  const { judged } = bench.sizes;
  bench.report({
    ...throughput(names.short, 'jobs/s', short.taken, judged ? rateGoal(bench, 5_000) : undefined),
    failure: failureOf(short),
  });
  bench.report({
    ...throughput(names.long(bench), 'jobs/s', long.taken),
    failure: failureOf(long),
  });
  bench.report({
    name: 'long queue to short',
    unit: 'of its rate',
    values: long.taken.map((round, i) => perSecond(round) / perSecond(short.taken[i] ?? round)),
    goal: judged ? { atLeast: deepRatio } : undefined,
  });
}

function failureOf({ taken }: { taken: readonly ClaimRound[] }): string | undefined {
  const sum = (of: (round: ClaimRound) => number) => taken.reduce((total, round) => total + of(round), 0);
  const duplicates = sum((round) => round.duplicates);
  if (duplicates > 0) return `${duplicates} jobs were handed out twice`;
  const empty = sum((round) => round.empty);
  return empty > 0 ? `${empty} claims got nothing although jobs were queued` : undefined;
}

async function floor(bench: Bench): Promise<void> {
  const { load, stage, sizes } = bench;
  const store = await stage.newStore();
  await load.run('openFloor', store.place);
  await load.run('floorFill', { jobs: (sizes.repeats + 2) * sizes.claims });
  await store.vacuum();
  const taken: Sample[] = [];
  if (sizes.warmUpMs > 0) await load.run('floorClaim', { jobs: sizes.claims });
  for (let i = 0; i < sizes.repeats; i++)
    taken.push(await sample(bench, undefined, () => load.run('floorClaim', { jobs: sizes.claims })));
  bench.report(throughput(`floor: ${claimers} a statement, no server`, 'jobs/s', taken));
}

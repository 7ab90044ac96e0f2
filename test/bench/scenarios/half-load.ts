import type { Steady } from '../load/drain-tasks.ts';
import { perSecond, type Sample, sample, throughput } from '../measure.ts';
import { residentMiB } from '../proc.ts';
import type { Bench, Figure, Scenario, Served } from '../scenario.ts';
import { drainWays, jobsOf } from './drains.ts';

const stream = 'steady';
const connections = 4;
/** Least and most of what there was at the beginning. */
const flat = { throughput: 0.9, memory: 1.25, deadRows: 2 };

/** Dead rows are cleared away once a minute at most: in less than this they have only just been, or are just about to be. */
const deadRowsTellMs = 600_000;

/** What a server was like after a part of the time. */
interface Look {
  round: Sample<Steady>;
  memoryMiB: number;
  deadRows: number;
}

/** Work that comes at half the pace at which it could be done, for long: nothing may grow and nothing may slow down. */
export const halfLoad: Scenario = {
  name: 'half-load',
  about:
    'Half of what a drain can do, for long: throughput, memory and dead rows at the end as at the beginning',
  engines: ['postgresql'],
  async run(bench) {
    const { sizes, load } = bench;
    const served = await bench.someServer();
    const target = { address: served.server.grpc, client: sizes.client, connections };
    const [way] = drainWays;
    const jobs = jobsOf(bench, way.share);
    await load.run('fill', { target, stream, jobs });
    const most = perSecond(await way.drain(load, { target, stream, jobs }));
    const perWindow = { target, stream, perSecond: most / 2, durationMs: sizes.halfLoadWindowMs };
    await way.steady(load, perWindow);
    const looks: Look[] = [];
    for (let window = 0; window < sizes.halfLoadMs / sizes.halfLoadWindowMs; window++) {
      const round = await sample(bench, served.server, () => way.steady(load, perWindow));
      looks.push({ round, ...(await lookAt(served)) });
    }
    report(bench, looks);
  },
};

async function lookAt({ server, store }: Served): Promise<Omit<Look, 'round'>> {
  const dead = await store.query("select n_dead_tup from pg_stat_user_tables where relname = 'live_jobs'");
  return { memoryMiB: residentMiB(server.pid) ?? 0, deadRows: Number(dead) };
}

function report(bench: Bench, looks: readonly Look[]): void {
  const rounds = looks.map(({ round }) => round);
  const duplicates = rounds.reduce((sum, round) => sum + round.duplicates, 0);
  const failure = duplicates > 0 ? `${duplicates} jobs were handed out twice` : undefined;
  bench.report({ ...throughput('half load', 'jobs/s', rounds), failure });
  bench.report({ name: 'resident memory', unit: 'MiB', values: looks.map(({ memoryMiB }) => memoryMiB) });
  bench.report({
    name: 'dead rows of unfinished jobs',
    unit: 'rows',
    values: looks.map(({ deadRows }) => deadRows),
  });
  const change = (name: string, of: (look: Look) => number, limit: Figure['goal']) => {
    const third = Math.ceil(looks.length / 3);
    const mean = (some: readonly Look[]) => some.reduce((sum, look) => sum + of(look), 0) / some.length;
    const values = [mean(looks.slice(-third)) / mean(looks.slice(0, third))];
    bench.report({
      name: `${name}, the last third to the first`,
      unit: 'of it',
      values,
      goal: bench.sizes.judged ? limit : undefined,
    });
  };
  change('throughput', ({ round }) => perSecond(round), { atLeast: flat.throughput });
  change('memory', ({ memoryMiB }) => memoryMiB, { below: flat.memory });
  const { halfLoadMs } = bench.sizes;
  const deadRows = ({ deadRows }: Look) => deadRows + 1;
  change('dead rows', deadRows, halfLoadMs < deadRowsTellMs ? undefined : { below: flat.deadRows });
}

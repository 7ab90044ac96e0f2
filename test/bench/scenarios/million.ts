import type { LeaseSet } from '../load/lease-set.ts';
import { perSecond, sample, throughput } from '../measure.ts';
import { peakResidentMiB } from '../proc.ts';
import type { Bench, Scenario } from '../scenario.ts';
import { lossesIn, sets } from './lease-sets.ts';

const streams = 200;
const connections = 20;
const memoryGoalMiB = 1_024;
/** Of what is due: answers that come a moment after the end of a window are not in it. */
const rateShare = 0.99;

export const heartbeatMillion: Scenario = {
  name: 'heartbeat-million',
  about: `A million live leases, each kept every 30 s, over ${streams} streams; ten minutes with --long`,
  engines: ['postgresql'],
  leases: (sizes) => [sets.million(sizes)],
  run: (bench) => keepAll(bench, sets.million(bench.sizes)),
};

/** Every heartbeat then changes a page of its own, and there are more pages than a PostgreSQL keeps by default. */
export const millionByTurns: Scenario = {
  name: 'million-by-turns',
  about: 'The same, where what a worker holds lies scattered over the store',
  engines: ['postgresql'],
  smokeEngines: [],
  leases: (sizes) => [sets.millionByTurns(sizes)],
  run: (bench) => keepAll(bench, sets.millionByTurns(bench.sizes)),
};

async function keepAll(bench: Bench, set: LeaseSet): Promise<void> {
  const { load, sizes } = bench;
  const { server } = await bench.someServer();
  const order = {
    target: { address: server.grpc, client: sizes.client, connections, streams },
    set,
    everyMs: sizes.keepEveryMs,
    durationMs: sizes.keepMs,
    windowMs: sizes.keepWindowMs,
  };
  const kept = await sample(bench, server, () => load.run('keep', order));
  const due = (set.leases / sizes.keepEveryMs) * 1_000;
  const { cpu, latency } = throughput('', '', [kept]);
  bench.report({
    name: `kept, of ${set.leases.toLocaleString('en')} live`,
    unit: 'leases/s',
    values: kept.windows.map(perSecond),
    goal: sizes.judged ? { atLeast: rateShare * due } : undefined,
    latency,
    cpu,
    failure: lossesIn([kept]),
  });
  const windowS = sizes.keepWindowMs / 1_000;
  const p99Ms = kept.windows.map((window) => window.latency.p99Ms);
  bench.report({ name: `p99 of a verdict, by ${windowS} s`, unit: 'ms', values: p99Ms });
  bench.report({ name: 'leases lost', unit: 'of all', values: [kept.lost] });
  const peakMiB = peakResidentMiB(server.pid);
  if (peakMiB === undefined) return;
  const goal = sizes.judged ? { below: memoryGoalMiB } : undefined;
  bench.report({ name: 'resident memory at its peak', unit: 'MiB', values: [peakMiB], goal });
}

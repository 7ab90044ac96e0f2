import type { Reconnected } from '../load/reconnect-task.ts';
import type { Bench, Scenario } from '../scenario.ts';
import { lossesIn, sets } from './lease-sets.ts';

const connections = 100;
const windowMs = 1_000;
const p99GoalMs = 500;
const recoveryGoalS = 15;

export const reconnect: Scenario = {
  name: 'reconnect',
  about: 'Workers with a stream and a lease each, over 100 connections, that all drop and reconnect at once',
  engines: ['postgresql', 'embedded'],
  smokeEngines: ['postgresql'],
  leases: (sizes) => [sets.workers(sizes)],
  async run(bench) {
    const { load, sizes } = bench;
    const { server } = await bench.someServer();
    const set = sets.workers(sizes);
    const outcome = await load.run('reconnect', {
      target: { address: server.grpc, client: sizes.client, connections },
      set,
      everyMs: sizes.workerEveryMs,
      beforeMs: sizes.beforeMs,
      afterMs: sizes.afterMs,
      windowMs,
    });
    report(bench, set.leases, outcome);
  },
};

function report(bench: Bench, workers: number, { before, after, silent, ...losses }: Reconnected): void {
  const {
    engine,
    sizes: { judged },
  } = bench;
  const p99s = (windows: Reconnected['after']) => windows.map(({ latency }) => latency.p99Ms);
  const who = `${workers.toLocaleString('en')} workers`;
  // The first window holds the first connecting, which is as much of a rush.
  const steady = p99s(before).slice(1);
  if (steady.length > 0) bench.report({ name: `p99 of ${who}, by second`, unit: 'ms', values: steady });
  bench.report({
    name: 'p99 of the second in which they return',
    unit: 'ms',
    values: p99s(after).slice(0, 1),
  });
  bench.report({
    name: `from the drop until p99 stays below ${p99GoalMs} ms`,
    unit: 's',
    values: [recoveredAfterS(p99s(after))],
    goal: judged && engine === 'postgresql' ? { below: recoveryGoalS } : undefined,
    failure:
      lossesIn([losses]) ?? (silent > 0 ? `${silent} workers never heard that they may go on` : undefined),
  });
  bench.report({ name: 'leases lost', unit: `of ${who}`, values: [losses.lost] });
}

/** The end of the last window in which many waited too long; heartbeats belong to the window in which they were due. */
function recoveredAfterS(p99s: readonly number[]): number {
  const lastBad = p99s.findLastIndex((p99Ms) => p99Ms >= p99GoalMs);
  return ((lastBad + 1) * windowMs) / 1_000;
}

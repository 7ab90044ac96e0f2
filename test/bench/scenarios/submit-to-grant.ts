import { samples, throughput } from '../measure.ts';
import type { Scenario } from '../scenario.ts';

const pauseMs = 20;
const waitMs = 10_000;
const goals = [
  ['p50', 'p50Ms', 2],
  ['p99', 'p99Ms', 8],
] as const;

/** How long a job is under way to a worker that waits for it, where nobody else wants anything. */
export const submitToGrant: Scenario = {
  name: 'submit-to-grant',
  about: `From the call that submits a job to its grant at a worker that waits, one every ${pauseMs} ms on an idle server`,
  engines: ['postgresql', 'embedded'],
  smokeEngines: ['postgresql'],
  quick: true,
  async run(bench) {
    const { load, sizes, engine } = bench;
    const { server } = await bench.someServer();
    const target = { address: server.grpc, client: sizes.client, connections: 2 };
    const order = { target, stream: 'grants', jobs: sizes.loneGrants, pauseMs, waitMs };
    const taken = await samples(bench, server, () => load.run('awaitGrants', order));
    const empty = taken.reduce((sum, round) => sum + round.empty, 0);
    const { cpu } = throughput('', '', taken);
    for (const [name, of, below] of goals) {
      bench.report({
        name: `submitted to granted, ${name}`,
        unit: 'ms',
        values: taken.map(({ latency }) => latency[of]),
        goal: sizes.judged && engine === 'postgresql' ? { below } : undefined,
        cpu: of === 'p99Ms' ? cpu : undefined,
        failure: empty > 0 ? `${empty} jobs never came` : undefined,
      });
    }
  },
};

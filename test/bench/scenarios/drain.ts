import type { WorkRound } from '../load/work-stream.ts';
import { rateGoal, type Sample, sample, throughput } from '../measure.ts';
import type { Scenario } from '../scenario.ts';

const streams = 4;
const credit = 1_000;
const connections = 4;

export const drain: Scenario = {
  name: 'drain',
  about: `StreamWork: claim and complete, ${streams} workers with credit for ${credit} jobs each`,
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { load, sizes } = bench;
    const store = await bench.stage.newStore();
    const server = await bench.serve(
      { ...store, env: { ...store.env, LEASEHOLD_CAPACITY_TOTAL: '1000000000' } },
      'drain',
    );
    const target = { address: server.grpc, client: sizes.client, connections };
    const taken: (WorkRound & Sample)[] = [];
    for (let round = sizes.warmUpMs > 0 ? -1 : 0; round < sizes.repeats; round++) {
      await load.run('fill', { target, jobs: sizes.drainJobs });
      const one = await sample(bench, server, () =>
        load.run('drain', { target, streams, credit, jobs: sizes.drainJobs }),
      );
      if (round >= 0) taken.push(one);
    }
    const duplicates = taken.reduce((sum, round) => sum + round.duplicates, 0);
    bench.report({
      ...throughput(
        'drain over StreamWork',
        'jobs/s',
        taken,
        sizes.judged ? rateGoal(bench, 42_000) : undefined,
      ),
      failure: duplicates > 0 ? `${duplicates} jobs were granted twice` : undefined,
    });
    await bench.stopServers();
  },
};

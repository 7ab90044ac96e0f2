import { perSecond, type Sample, sample, throughput } from '../measure.ts';
import type { Scenario } from '../scenario.ts';

const claimers = 64;
const connections = 4;
/** Far more than are deleted while the rounds last. */
const endedPerRound = 50_000;

/** Claims by turns beside a pruner that has more to delete than it can, and beside none. */
export const prune: Scenario = {
  name: 'prune',
  about: `ClaimJobs by ${claimers} claimers, by turns with and without the pruner at work beside them`,
  engines: ['postgresql'],
  async run(bench) {
    const { sizes, load } = bench;
    const { server, store } = await bench.someServer();
    const target = { address: server.grpc, client: sizes.client, connections };
    const { claims, repeats, warmUpMs } = sizes;
    const rounds = repeats + (warmUpMs > 0 ? 1 : 0);
    await load.run('seedEnded', { place: store.place, jobs: sizes.judged ? rounds * endedPerRound : claims });
    await load.run('fill', { target, jobs: 2 * rounds * claims });
    await store.vacuum();
    const taken: Record<'alone' | 'beside', Sample[]> = { alone: [], beside: [] };
    const deleted: number[] = [];
    for (let round = rounds - repeats === 0 ? 0 : -1; round < repeats; round++) {
      const alone = await sample(bench, server, () => load.run('claim', { target, claimers, jobs: claims }));
      await load.run('beginPruning', store.place);
      const beside = await sample(bench, server, () => load.run('claim', { target, claimers, jobs: claims }));
      const pruned = await load.run('endPruning');
      if (round < 0) continue;
      taken.alone.push(alone);
      taken.beside.push(beside);
      deleted.push((pruned / beside.elapsedMs) * 1_000);
    }
    bench.report(throughput(`ClaimJobs, ${claimers} claimers`, 'jobs/s', taken.alone));
    bench.report(throughput('the same beside the pruner', 'jobs/s', taken.beside));
    bench.report({ name: 'which deletes', unit: 'jobs/s', values: deleted });
    bench.report({
      name: 'beside the pruner to alone',
      unit: 'of its rate',
      values: taken.beside.map((round, i) => perSecond(round) / perSecond(taken.alone[i] ?? round)),
    });
  },
};

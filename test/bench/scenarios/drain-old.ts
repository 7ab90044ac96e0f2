import type { DrainRound } from '../load/drain-tasks.ts';
import { perSecond, type Sample, sample, throughput } from '../measure.ts';
import type { Bench, Scenario } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';
import type { Store } from '../stage.ts';
import { drainWays, faultsOf, jobsOf } from './drains.ts';

const stream = 'drain';
const connections = 4;
const leastRatio = 0.8;

interface Queue {
  server: ServerProcess;
  store: Store;
  taken: Sample<DrainRound>[];
}

/**
 * A drain beside all that gathers in a queue: jobs that wait, jobs that are over, and what is dead and may not be cleared
 * away, because somebody keeps a snapshot open; by turns with an empty store, for as long as the snapshot is kept. The
 * rows that die meanwhile lie at the head of the queue, where the next ones are taken.
 */
export const drainOld: Scenario = {
  name: 'drain-old',
  about:
    'Draining beside many jobs that wait and many that are over, with a snapshot held open, by turns with an empty store',
  engines: ['postgresql'],
  async run(bench) {
    const { sizes, load } = bench;
    const young = await open(bench, 'drain-young', 0);
    const old = await open(bench, 'drain-old', sizes.oldFinished);
    await load.run('fill', { target: targetOf(bench, old), stream, jobs: sizes.oldQueued });
    await old.store.vacuum();
    for (const queue of [young, old]) await play(bench, queue);
    await load.run('holdSnapshot', { url: old.store.place.url as string });
    const until = performance.now() + sizes.oldMs;
    while (performance.now() < until || old.taken.length < 2)
      for (const queue of [young, old]) queue.taken.push(await play(bench, queue));
    await load.run('dropSnapshot');
    report(bench, young, old);
  },
};

async function open(bench: Bench, name: string, finished: number): Promise<Queue> {
  const store = await bench.stage.newStore();
  await bench.load.run('seedOver', { place: store.place, stream, jobs: finished });
  await store.vacuum();
  return { store, server: await bench.serve(store, name), taken: [] };
}

const targetOf = ({ sizes }: Bench, { server }: Queue) => ({
  address: server.grpc,
  client: sizes.client,
  connections,
});

async function play(bench: Bench, queue: Queue): Promise<Sample<DrainRound>> {
  const [way] = drainWays;
  const jobs = jobsOf(bench, way.share);
  const target = targetOf(bench, queue);
  await bench.load.run('fill', { target, stream, jobs });
  return sample(bench, queue.server, () => way.drain(bench.load, { target, stream, jobs }));
}

function report(bench: Bench, young: Queue, old: Queue): void {
  const { judged, oldQueued, oldFinished, oldMs } = bench.sizes;
  const [way] = drainWays;
  const number = (value: number) => value.toLocaleString('en');
  const beside = `${number(oldQueued)} queued, ${number(oldFinished)} over, a snapshot for ${number(oldMs / 1_000)} s`;
  const values = old.taken.map((round, i) => perSecond(round) / perSecond(young.taken[i] ?? round));
  bench.report({ ...throughput(way.name, 'jobs/s', young.taken), failure: faultsOf(young.taken) });
  bench.report({
    ...throughput(`the same beside ${beside}`, 'jobs/s', old.taken),
    failure: faultsOf(old.taken),
  });
  bench.report({
    name: 'old store to empty one',
    unit: 'of its rate',
    values,
    goal: judged ? { atLeast: leastRatio } : undefined,
  });
  bench.report({
    name: 'the same in the last quarter',
    unit: 'of its rate',
    values: values.slice(-Math.ceil(values.length / 4)),
  });
}

/** What is under draining: the store's statements with no server before them, and what a commit costs the database. */
import { PgBench } from '../pgbench.ts';
import type { Bench, Scenario } from '../scenario.ts';
import { type Entrant, playByTurns } from '../turns.ts';
import { jobsOf } from './drains.ts';

const stream = 'floor';
const clients = [1, 8];

/** The floor as one who takes part in a contest of drains. */
export async function floorEntrant(bench: Bench): Promise<Entrant> {
  const { load, stage } = bench;
  const store = await stage.newStore();
  const url = store.place.url as string;
  await load.run('openFloor', { ...store.place, stream });
  await load.run('openRawDrain', { url, stream });
  return {
    name: 'floor: the same statements from a driver',
    side: 'floor',
    async prepare(share) {
      await load.run('floorFill', { jobs: jobsOf(bench, share) });
      await store.vacuum();
    },
    play: (share) => load.run('rawDrain', { jobs: jobsOf(bench, share) }),
  };
}

export const drainRaw: Scenario = {
  name: 'drain-raw',
  about: 'The floor under draining: the statements of a drain straight from a driver',
  engines: ['postgresql'],
  async run(bench) {
    await playByTurns(bench, { name: 'drain-raw', unit: 'jobs/s' }, [await floorEntrant(bench)]);
  },
};

export const commits: Scenario = {
  name: 'commits',
  about: 'What the database itself can commit: pgbench with one update a transaction',
  engines: ['postgresql'],
  quick: true,
  async run(bench) {
    const { sizes, stage } = bench;
    const pgbench = await PgBench.open(await stage.newStore());
    if (!pgbench) {
      bench.note('pgbench is not covered: it is not beside the PostgreSQL that is used here');
      return;
    }
    for (const count of sizes.judged ? clients : clients.slice(0, 1)) {
      const values: number[] = [];
      for (let round = 0; round < sizes.repeats; round++)
        values.push(await pgbench.run(count, sizes.roundMs));
      bench.report({ name: `pgbench, clients: ${count}`, unit: 'commits/s', values });
    }
  },
};

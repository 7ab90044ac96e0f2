import type { Scenario } from '../scenario.ts';

const emptyGoalS = 5;
const usedGoalS = 2;
const jobsBetween = 5_000;

export const start: Scenario = {
  name: 'start',
  about: "From the start of the process to the line that says 'ready', on an empty store and on a used one",
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { sizes, stage, load, engine } = bench;
    const emptyS: number[] = [];
    const usedS: number[] = [];
    for (let i = 0; i < sizes.starts; i++) {
      const store = await stage.newStore();
      const first = await bench.serve(store);
      emptyS.push(first.readyMs / 1000);
      const target = { address: first.grpc, client: sizes.client, connections: 1 };
      await load.run('fill', { target, jobs: jobsBetween });
      await first.stop();
      const second = await bench.serve(store);
      usedS.push(second.readyMs / 1000);
      await second.stop();
    }
    const goal = (below: number) => (sizes.judged && engine === 'embedded' ? { below } : undefined);
    bench.report({ name: 'ready, empty', unit: 's', values: emptyS, goal: goal(emptyGoalS) });
    bench.report({ name: 'ready, used', unit: 's', values: usedS, goal: goal(usedGoalS) });
  },
};

import { setTimeout as delay } from 'node:timers/promises';
import { cpuMs, residentMiB } from '../proc.ts';
import type { Bench, Scenario } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';

const jobsBefore = 20_000;

export const idle: Scenario = {
  name: 'idle',
  about: 'Processor and memory of a server that nobody calls, fresh and after some work',
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { server } = await bench.someServer();
    if (cpuMs(server.pid) === undefined) return;
    await look(bench, server, 'fresh', true);
    const target = { address: server.grpc, client: bench.sizes.client, connections: 1 };
    await bench.load.run('fill', { target, jobs: jobsBefore });
    await look(bench, server, `after ${jobsBefore.toLocaleString('en')} jobs`, false);
  },
};

/** What a server takes that has work behind it is told as well; how soon memory is given back is its own affair. */
async function look(bench: Bench, { pid }: ServerProcess, when: string, isJudged: boolean): Promise<void> {
  const { sizes, engine } = bench;
  const goal = (below: number) =>
    isJudged && sizes.judged && engine === 'postgresql' ? { below } : undefined;
  await delay(sizes.settleMs);
  const before = cpuMs(pid) ?? 0;
  const began = performance.now();
  await delay(sizes.idleMs);
  const share = ((cpuMs(pid) ?? 0) - before) / (performance.now() - began);
  bench.report({ name: `processor, ${when}`, unit: '% of a core', values: [share * 100], goal: goal(1) });
  bench.report({
    name: `resident memory, ${when}`,
    unit: 'MiB',
    values: [residentMiB(pid) ?? 0],
    goal: goal(200),
  });
}

import type { Scenario } from '../scenario.ts';
import { lossesIn, sets } from './lease-sets.ts';

const streams = 16;
const connections = 4;
const goalMs = 250;

/**
 * Leases that nobody keeps, while many others are kept. The figures are the database's: when a lease was over, and
 * when it was handled. An embedded database can be asked only once its server has stopped.
 */
export const expiry: Scenario = {
  name: 'expiry',
  about: 'How long after its end a lease that nobody keeps is handled, beside 100,000 that are kept',
  engines: ['postgresql', 'embedded'],
  smokeEngines: ['postgresql'],
  leases: (sizes) => [sets.beside(sizes), sets.expiring(sizes)],
  async run(bench) {
    const { load, sizes, engine } = bench;
    const { server, store } = await bench.someServer();
    const beside = sets.beside(sizes);
    const expiring = sets.expiring(sizes);
    const kept = await load.run('keep', {
      target: { address: server.grpc, client: sizes.client, connections, streams },
      set: beside,
      everyMs: sizes.keepEveryMs,
      durationMs: sizes.expiringForMs,
      windowMs: sizes.expiringForMs,
    });
    await bench.stopServers();
    const { handled, minMs, p50Ms, p99Ms, maxMs } = await load.run('readExpiries', [store.place, expiring]);
    const isEarly = minMs < 0 ? `a lease was handled ${-minMs} ms before it was over` : undefined;
    const areMissing =
      handled === expiring.leases
        ? undefined
        : `${expiring.leases} leases were over, and ${handled} were handled`;
    bench.report({
      name: `expired to handled, p99 of ${expiring.leases.toLocaleString('en')}`,
      unit: 'ms',
      values: [p99Ms],
      goal: sizes.judged && engine === 'postgresql' ? { below: goalMs } : undefined,
      latency: { p50Ms, p99Ms },
      failure: lossesIn([kept]) ?? areMissing ?? isEarly,
    });
    bench.report({ name: 'the earliest', unit: 'ms', values: [minMs] });
    bench.report({ name: 'the latest', unit: 'ms', values: [maxMs] });
  },
};

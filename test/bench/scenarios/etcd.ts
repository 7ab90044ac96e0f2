import { EtcdServer } from '../etcd-server.ts';
import { samples, throughput } from '../measure.ts';
import type { Scenario } from '../scenario.ts';

const streams = 8;
const inFlight = 16;
const connections = 4;

/** Leases that somebody else keeps, in memory and not on the disk: what a heartbeat may cost where nothing is kept for long. */
export const etcd: Scenario = {
  name: 'heartbeat-etcd',
  about: `etcd's LeaseKeepAlive where etcd is installed, ${streams} streams with ${inFlight} in flight each`,
  engines: ['postgresql'],
  quick: true,
  async run(bench) {
    const { load, sizes } = bench;
    const server = await EtcdServer.start();
    if (!server) {
      bench.note('etcd is not covered: it is not on the PATH');
      return;
    }
    const target = { address: server.address, client: sizes.client, connections, streams };
    const taken = await samples(bench, server, (durationMs) =>
      load.run('keepEtcdLeases', { target, leases: 1_000, inFlight, durationMs }),
    );
    bench.report(throughput('etcd LeaseKeepAlive, one lease a message', 'leases/s', taken));
    await load.run('close');
    await server.stop();
  },
};

import { rateGoal, samples, throughput } from '../measure.ts';
import type { Bench, Scenario } from '../scenario.ts';

const both = ['postgresql', 'embedded'] as const;

/** Jobs in a call, and calls in flight: two fill a statement of the engine, and it has two statements under way. */
const batch = 500;
const batchesInFlight = 6;
const singlyInFlight = 64;
/** A few connections, as the load balancers and worker pools in front of a server have. */
const singlyConnections = 4;
const restConnections = 64;

export const submitBatches: Scenario = {
  name: 'submit-batches',
  about: `SubmitJobs over gRPC, ${batch} jobs a call, ${batchesInFlight} calls in flight`,
  engines: both,
  async run(bench) {
    const { load, sizes } = bench;
    const { server } = await bench.someServer();
    const target = { address: server.grpc, client: sizes.client, connections: 1 };
    const taken = await samples(bench, server, (durationMs) =>
      load.run('submitBatches', { target, batch, inFlight: batchesInFlight, durationMs }),
    );
    bench.report(
      throughput(`SubmitJobs, ${batch} a call`, 'jobs/s', taken, judged(bench, rateGoal(bench, 50_000))),
    );
    await bench.stopServers();
    await load.run('openFloor', (await bench.stage.newStore()).place);
    const floor = await samples(bench, undefined, (durationMs) => load.run('floorSubmit', { durationMs }));
    bench.report(throughput('floor: the same statement, no server', 'jobs/s', floor));
  },
};

export const submitSingly: Scenario = {
  name: 'submit-singly',
  about: `SubmitJob over gRPC, ${singlyInFlight} calls in flight`,
  engines: both,
  async run(bench) {
    const { load, sizes } = bench;
    const { server } = await bench.someServer();
    const target = { address: server.grpc, client: sizes.client, connections: singlyConnections };
    const taken = await samples(bench, server, (durationMs) =>
      load.run('submitSingly', { target, inFlight: singlyInFlight, durationMs }),
    );
    const name = `SubmitJob, ${singlyInFlight} in flight`;
    bench.report(throughput(name, 'calls/s', taken, judged(bench, rateGoal(bench, 8_000))));
  },
};

export const submitRest: Scenario = {
  name: 'submit-rest',
  about: `POST /api/scheduler/jobs/submit, ${restConnections} connections`,
  engines: both,
  async run(bench) {
    const { server } = await bench.someServer();
    const taken = await samples(bench, server, (durationMs) =>
      bench.load.run('submitRest', { address: server.http, connections: restConnections, durationMs }),
    );
    const name = `REST submit, ${restConnections} connections`;
    bench.report(throughput(name, 'calls/s', taken, judged(bench, rateGoal(bench, 8_000))));
  },
};

const judged = <Goal>({ sizes }: Bench, goal: Goal): Goal | undefined => (sizes.judged ? goal : undefined);

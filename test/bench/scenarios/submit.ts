import { rateGoal, samples, throughput } from '../measure.ts';
import type { Bench, Compared, Playing, Scenario } from '../scenario.ts';
import { playAlone } from '../turns.ts';

const both = ['postgresql', 'embedded'] as const;

/** Jobs in a call, and calls in flight: two fill a statement of the engine, and it has two statements under way. */
const batch = 500;
const batchesInFlight = 6;
const singlyInFlight = 64;
/** A few connections, as the load balancers and worker pools in front of a server have. */
const singlyConnections = 4;
const restConnections = 64;

const batches: Compared = {
  unit: 'jobs/s',
  entrants: (bench, { server }) => {
    const target = { address: server.grpc, client: bench.sizes.client, connections: 1 };
    const on = { target, batch, inFlight: batchesInFlight };
    return [
      {
        name: `SubmitJobs, ${batch} a call`,
        side: 'ours',
        server,
        goal: judged(bench, 50_000),
        play: (share) => bench.load.run('submitBatches', { ...on, durationMs: share * bench.sizes.roundMs }),
      },
    ];
  },
};

export const submitBatches: Scenario = {
  name: 'submit-batches',
  about: `SubmitJobs over gRPC, ${batch} jobs a call, ${batchesInFlight} calls in flight`,
  engines: both,
  async run(bench) {
    const { load } = bench;
    await playServed(bench, batches);
    await bench.stopServers();
    await load.run('openFloor', (await bench.stage.newStore()).place);
    const floor = await samples(bench, undefined, (durationMs) => load.run('floorSubmit', { durationMs }));
    bench.report(throughput('floor: the same statement, no server', 'jobs/s', floor));
  },
  compared: batches,
};

const singly: Compared = {
  unit: 'calls/s',
  entrants: (bench, { server }) => {
    const target = { address: server.grpc, client: bench.sizes.client, connections: singlyConnections };
    const on = { target, inFlight: singlyInFlight };
    return [
      {
        name: `SubmitJob, ${singlyInFlight} in flight`,
        side: 'ours',
        server,
        goal: judged(bench, 8_000),
        play: (share) => bench.load.run('submitSingly', { ...on, durationMs: share * bench.sizes.roundMs }),
      },
    ];
  },
};

export const submitSingly: Scenario = {
  name: 'submit-singly',
  about: `SubmitJob over gRPC, ${singlyInFlight} calls in flight`,
  engines: both,
  run: (bench) => playServed(bench, singly),
  compared: singly,
};

const rest: Compared = {
  unit: 'calls/s',
  entrants: (bench, { server }) => {
    const on = { address: server.http, connections: restConnections };
    return [
      {
        name: `REST submit, ${restConnections} connections`,
        side: 'ours',
        server,
        goal: judged(bench, 8_000),
        play: (share) => bench.load.run('submitRest', { ...on, durationMs: share * bench.sizes.roundMs }),
      },
    ];
  },
};

export const submitRest: Scenario = {
  name: 'submit-rest',
  about: `POST /api/scheduler/jobs/submit, ${restConnections} connections`,
  engines: both,
  run: (bench) => playServed(bench, rest),
  compared: rest,
};

async function playServed(bench: Bench, { unit, entrants }: Compared): Promise<void> {
  for (const entrant of entrants(bench, await bench.someServer())) await playAlone(bench, unit, entrant);
}

const judged = (bench: Playing, postgresql: number) =>
  bench.sizes.judged ? rateGoal(bench, postgresql) : undefined;

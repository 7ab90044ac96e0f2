import { setTimeout as delay } from 'node:timers/promises';
import type { BeatRound } from '../load/heartbeat-tasks.ts';
import type { LeaseSet } from '../load/lease-set.ts';
import { rateGoal, samples, throughput } from '../measure.ts';
import type { Bench, Compared, Playing, Scenario, Served } from '../scenario.ts';
import type { Store, Updates } from '../stage.ts';
import { type Entrant, playAlone } from '../turns.ts';
import { lossesIn, sets } from './lease-sets.ts';

const both = ['postgresql', 'embedded'] as const;

/** Streams share a few connections, as they do behind load balancers; the windows of one would be too small for them. */
const connections = 4;
const framesPerStream = 16;
const frameStreams = 8;
const leasesPerFrame = 50;
/**
 * The part of all leases that may be in flight. Where it is nearly all of them, as only few leases ever are, each row is
 * written again before the statements beside it are over, and a page has no room for so many of its versions.
 */
const flyingShare = 1 / 3;
const singlyPerStream = 32;
const singlyStreams = 64;
const unaryInFlight = 64;
const lonePauseMs = 10;
/** A PostgreSQL session tells what it did at most once a second. */
const countsLagMs = 1_100;
const hotShare = 0.99;

/** Who holds what decides which pages of the store a frame touches, and that is a good part of its cost. */
const holdings = [
  { held: 'held by turns', setFor: sets.frames },
  { held: 'held in a row', setFor: sets.framesInARow },
];

export const heartbeatFrames: Scenario = {
  name: 'heartbeat-frames',
  about: `StreamHeartbeats, ${leasesPerFrame} leases a frame, ${frameStreams} streams with ${framesPerStream} frames in flight each`,
  engines: both,
  quick: true,
  leases: (sizes) => holdings.map(({ setFor }) => setFor(sizes)),
  async run(bench) {
    const { sizes } = bench;
    // Sessions tell of what they did up to ten seconds later, where somebody else may take it for theirs.
    const isCounted = bench.engine === 'postgresql';
    const served = await (isCounted ? bench.ownServer() : bench.someServer());
    const { store } = served;
    const before = await store.updates();
    for (const entrant of framesOf(bench, served)) await playAlone(bench, 'leases/s', entrant);
    if (before) await reportHot(bench, store, before);
    await bench.stopServers();
    // Opening another embedded store would be the longest part of a smoke run.
    const isCheap = sizes.judged || bench.engine === 'postgresql';
    if (sizes.beatsFloor && isCheap) await reportFloor(bench);
  },
  compared: { unit: 'leases/s', entrants: framesOf },
};

function framesOf(bench: Playing, { server }: Served): Entrant[] {
  const { load, sizes } = bench;
  const target = { address: server.grpc, client: sizes.client, connections, streams: frameStreams };
  return holdings.map(({ held, setFor }) => {
    const set = setFor(sizes);
    const on = { target, set, inFlight: framesInFlight(set) };
    const rounds: BeatRound[] = [];
    return {
      name: `frames of 50, ${set.leases.toLocaleString('en')} leases ${held}`,
      side: 'ours',
      server,
      goal: judged(bench, rateGoal(bench, 150_000)),
      async play(share) {
        const round = await load.run('beatFrames', { ...on, durationMs: share * sizes.roundMs });
        rounds.push(round);
        return round;
      },
      failure: () => lossesIn(rounds),
    };
  });
}

/** Frames in flight on each stream. */
const framesInFlight = ({ leases }: LeaseSet): number =>
  Math.min(framesPerStream, Math.ceil((leases * flyingShare) / leasesPerFrame / frameStreams));

async function reportFloor(bench: Bench): Promise<void> {
  const { load, sizes, stage } = bench;
  const store = await stage.newStore();
  await load.run('openHeartbeatFloor', [store.place, holdings.map(({ setFor }) => setFor(sizes))]);
  await store.vacuum();
  for (const { held, setFor } of holdings) {
    const set = setFor(sizes);
    const taken = await samples(bench, undefined, (durationMs) => load.run('floorBeat', { set, durationMs }));
    bench.report(throughput(`floor: the same statement, ${held}`, 'leases/s', taken));
  }
}

async function reportHot(bench: Bench, store: Store, before: Updates): Promise<void> {
  await delay(countsLagMs);
  const after = await store.updates();
  if (!after) return;
  const all = after.all - before.all;
  bench.report({
    name: 'updates that changed no index (HOT)',
    unit: 'of all',
    values: [(after.hot - before.hot) / all],
    goal: judged(bench, { atLeast: hotShare }),
    failure: all === 0 ? 'the database counted no updates' : undefined,
  });
}

export const heartbeatSingly: Scenario = {
  name: 'heartbeat-singly',
  about: `StreamHeartbeats, one lease a frame, ${singlyStreams} streams with ${singlyPerStream} frames in flight each`,
  engines: both,
  leases: (sizes) => [sets.singly(sizes)],
  async run(bench) {
    const { load, sizes } = bench;
    const { server } = await bench.someServer();
    const set = sets.singly(sizes);
    const target = { address: server.grpc, client: sizes.client, connections, streams: singlyStreams };
    const taken = await samples(bench, server, (durationMs) =>
      load.run('beatFrames', { target, set, inFlight: singlyPerStream, durationMs }),
    );
    const goal = judged(bench, rateGoal(bench, 60_000));
    const name = `frames of one, ${singlyStreams} streams`;
    bench.report({ ...throughput(name, 'leases/s', taken, goal), failure: lossesIn(taken) });
  },
};

export const heartbeatLone: Scenario = {
  name: 'heartbeat-lone',
  about: 'StreamHeartbeats, one lease and one frame at a time on a server that has nothing else to do',
  engines: both,
  smokeEngines: ['postgresql'],
  leases: () => [sets.lone()],
  async run(bench) {
    const { load, sizes, engine } = bench;
    const { server } = await bench.someServer();
    const target = { address: server.grpc, client: sizes.client, connections: 1, streams: 1 };
    const order = { target, set: sets.lone(), beats: sizes.loneBeats, pauseMs: lonePauseMs };
    const taken = await samples(bench, server, () => load.run('beatAlone', order));
    bench.report({
      name: 'a lone heartbeat, p99',
      unit: 'ms',
      values: taken.map(({ latency }) => latency.p99Ms),
      goal: engine === 'postgresql' ? judged(bench, { below: 5 }) : undefined,
      latency: throughput('', '', taken).latency,
      failure: lossesIn(taken),
    });
  },
};

const unary: Compared = {
  unit: 'calls/s',
  entrants: (bench, { server }) => {
    const { load, sizes } = bench;
    const set = sets.unary(sizes);
    const target = { address: server.grpc, client: sizes.client, connections };
    const on = { target, set, inFlight: unaryInFlight };
    return [
      {
        name: `Heartbeat, ${unaryInFlight} in flight`,
        side: 'ours',
        server,
        goal: judged(bench, rateGoal(bench, 8_000)),
        play: (share) => load.run('beatUnary', { ...on, durationMs: share * sizes.roundMs }),
      },
    ];
  },
};

export const heartbeatUnary: Scenario = {
  name: 'heartbeat-unary',
  about: `Heartbeat over gRPC and over REST, ${unaryInFlight} calls in flight`,
  engines: both,
  leases: (sizes) => [sets.unary(sizes)],
  async run(bench) {
    const { load, sizes } = bench;
    const served = await bench.someServer();
    const { server } = served;
    const set = sets.unary(sizes);
    const goal = judged(bench, rateGoal(bench, 8_000));
    for (const entrant of unary.entrants(bench, served)) await playAlone(bench, unary.unit, entrant);
    for (const contract of ['heartbeat', 'queue'] as const) {
      const order = { address: server.http, set, contract, connections: unaryInFlight };
      const taken = await samples(bench, server, (durationMs) =>
        load.run('beatRest', { ...order, durationMs }),
      );
      const name = `REST, ${contract} contract, ${unaryInFlight} connections`;
      bench.report(throughput(name, 'calls/s', taken, contract === 'heartbeat' ? goal : undefined));
    }
  },
  compared: unary,
};

const judged = <Goal>({ sizes }: Playing, goal: Goal): Goal | undefined => (sizes.judged ? goal : undefined);

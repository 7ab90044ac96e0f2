import { type Contender, type Contest, fastestPeer, ratio } from '../contest.ts';
import type { DrainRound } from '../load/drain-tasks.ts';
import { type OpenPeer, openPeers } from '../peers/list.ts';
import type { PeerMode } from '../peers/peer.ts';
import type { Bench, Playing, Scenario, Served } from '../scenario.ts';
import { type Entrant, playByTurns } from '../turns.ts';
import { type DrainWay, drainWays, faultsOf, jobsOf } from './drains.ts';
import { floorEntrant } from './floors.ts';

const connections = 4;
/** Where jobs are taken one by one, a round of fewer takes as long. */
const defaultShare = 0.2;

/** Queued jobs carried out and completed: ours, the floor under ours, and other people's, by turns. */
export const peersDrain: Scenario = {
  name: 'peers-drain',
  about:
    'Queued jobs carried out and completed: ours, graphile-worker, pg-boss and BullMQ, each by default and at its fastest',
  engines: ['postgresql'],
  quick: true,
  async run(bench) {
    const [peers, served] = await Promise.all([openPeers(bench), bench.someServer()]);
    try {
      const entrants = [
        ...oursOf(bench, served),
        await floorEntrant(bench),
        ...peers.flatMap((peer) => theirsOf(bench, peer)),
      ];
      const contest = await playByTurns(bench, { name: 'drain', unit: 'jobs/s' }, entrants);
      for (const way of drainWays) reportGoals(bench, way, contest);
    } finally {
      await Promise.all(peers.map((peer) => peer.close()));
    }
  },
  // The peers are the same beside either tree.
  compared: { unit: 'jobs/s', entrants: oursOf },
};

function oursOf(bench: Playing, served: Served): Entrant[] {
  return drainWays.map((way, i) => oneOfOurs(bench, served, way, `drain-${i}`));
}

function oneOfOurs(bench: Playing, { server, store }: Served, way: DrainWay, stream: string): Entrant {
  const { load, sizes } = bench;
  const target = { address: server.grpc, client: sizes.client, connections };
  const rounds: DrainRound[] = [];
  const jobs = (share: number) => jobsOf(bench, share * way.share);
  return {
    name: way.name,
    side: 'ours',
    server,
    goal: goalOf(bench, way.goals.perSecond),
    async prepare(share) {
      await load.run('fill', { target, stream, jobs: jobs(share) });
      await store.vacuum();
    },
    async play(share) {
      const round = await way.drain(load, { target, stream, jobs: jobs(share) });
      rounds.push(round);
      return round;
    },
    failure: () => faultsOf(rounds),
  };
}

function theirsOf(bench: Bench, { load, modes, server, vacuum }: OpenPeer): Entrant[] {
  const entries = Object.entries(modes) as [PeerMode, string][];
  return entries.map(([mode, name]) => {
    const jobs = (share: number) => jobsOf(bench, mode === 'default' ? share * defaultShare : share);
    return {
      name,
      side: 'peer',
      server,
      async prepare(share) {
        await load.run('peerFill', { jobs: jobs(share) });
        await vacuum();
      },
      play: (share) => load.run('peerDrain', { mode, jobs: jobs(share) }),
    };
  });
}

function reportGoals(bench: Bench, { name, goals }: DrainWay, contest: Contest): void {
  const ours = contest.contenders.find((one) => one.name === name);
  const report = (other: Contender | undefined, least: number | undefined, what: string) => {
    if (!ours || !other || least === undefined) return;
    const { values } = ratio(ours, other);
    bench.report({ name: `${name} to ${what}`, unit: 'of its rate', values, goal: goalOf(bench, least) });
  };
  const named = (wanted: string) => contest.contenders.find((one) => one.name === wanted);
  const fastest = fastestPeer(contest);
  report(fastest, goals.ofFastestPeer, `the fastest peer, ${fastest?.name}`);
  for (const peer of defaults) report(named(peer), goals.ofDefaults, peer);
  const floor = contest.contenders.find(({ side }) => side === 'floor');
  report(floor, goals.ofFloor, 'the floor');
}

/** Those that keep their jobs in PostgreSQL as well, as they come. */
const defaults = ['graphile-worker, default', 'pg-boss, default'];

const goalOf = ({ sizes }: Playing, least: number | undefined) =>
  sizes.judged && least !== undefined ? { atLeast: least } : undefined;

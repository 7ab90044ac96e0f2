import { type Contest, fastestPeer, ratio } from '../contest.ts';
import { type OpenPeer, openPeers } from '../peers/list.ts';
import type { Bench, Scenario } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';
import { type Entrant, playByTurns } from '../turns.ts';

/** The same for all. */
const batch = 1_000;
const batchesInFlight = 4;
const singlyInFlight = 64;
const connections = 4;

const goals = { batches: 1, singly: 5 };

/** Jobs submitted in batches and one by one: ours and other people's, by turns. */
export const peersSubmit: Scenario = {
  name: 'peers-submit',
  about: `Jobs submitted in batches, and one by one with ${singlyInFlight} calls in flight: ours and graphile-worker's, pg-boss's and BullMQ's`,
  engines: ['postgresql'],
  quick: true,
  async run(bench) {
    const [peers, { server }] = await Promise.all([openPeers(bench), bench.someServer()]);
    try {
      const ours = oursOf(bench, server);
      const theirs = peers.map((peer) => theirsOf(bench, peer));
      const batches = [ours.batches, ...theirs.map((their) => their.batches)];
      const singly = [ours.singly, ...theirs.map((their) => their.singly)];
      const unit = 'jobs/s';
      judge(bench, await playByTurns(bench, { name: 'submit in batches', unit }, batches), goals.batches);
      judge(bench, await playByTurns(bench, { name: 'submit singly', unit }, singly), goals.singly);
    } finally {
      await Promise.all(peers.map((peer) => peer.close()));
    }
  },
};

interface Submitting {
  batches: Entrant;
  singly: Entrant;
}

function oursOf({ load, sizes }: Bench, server: ServerProcess): Submitting {
  const target = { address: server.grpc, client: sizes.client };
  const durationMs = (share: number) => share * sizes.roundMs;
  const inBatches = { target: { ...target, connections: 1 }, batch, inFlight: batchesInFlight };
  const singly = { target: { ...target, connections }, inFlight: singlyInFlight };
  return {
    batches: {
      name: `SubmitJobs, ${batch} a call`,
      side: 'ours',
      server,
      play: (share) => load.run('submitBatches', { ...inBatches, durationMs: durationMs(share) }),
    },
    singly: {
      name: `SubmitJob, ${singlyInFlight} in flight`,
      side: 'ours',
      server,
      play: (share) => load.run('submitSingly', { ...singly, durationMs: durationMs(share) }),
    },
  };
}

function theirsOf({ sizes }: Bench, { name, load, server }: OpenPeer): Submitting {
  const durationMs = (share: number) => share * sizes.roundMs;
  const inBatches = { batch, inFlight: batchesInFlight };
  return {
    batches: {
      name: `${name}, batches`,
      side: 'peer',
      server,
      play: (share) => load.run('peerSubmitBatches', { ...inBatches, durationMs: durationMs(share) }),
    },
    singly: {
      name: `${name}, singly`,
      side: 'peer',
      server,
      play: (share) =>
        load.run('peerSubmitSingly', { inFlight: singlyInFlight, durationMs: durationMs(share) }),
    },
  };
}

function judge(bench: Bench, contest: Contest, least: number): void {
  const fastest = fastestPeer(contest);
  const ours = contest.contenders.find(({ side }) => side === 'ours');
  if (!fastest || !ours) return;
  bench.report({
    name: `${ours.name} to the fastest peer, ${fastest.name}`,
    unit: 'of its rate',
    values: ratio(ours, fastest).values,
    goal: bench.sizes.judged ? { atLeast: least } : undefined,
  });
}

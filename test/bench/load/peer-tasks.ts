/** What the load process can be asked to do with somebody else's queue, of which it holds one. */
import type { Peer, PeerMode, PeerModule } from '../peers/peer.ts';
import { drive, forCount, forDuration, type Round, type Untimed } from './drive.ts';
import { inTime } from './in-time.ts';

/** Only the one that is measured is loaded, and none where none is. */
const modules = {
  'graphile-worker': (): Promise<PeerModule> => import('../peers/graphile-worker.ts'),
  'pg-boss': (): Promise<PeerModule> => import('../peers/pg-boss.ts'),
  bullmq: (): Promise<PeerModule> => import('../peers/bullmq.ts'),
};

export type PeerName = keyof typeof modules;

const fillBatch = 1_000;
const fillInFlight = 2;
/** A round takes seconds; who has lost a job would wait for it for ever. */
const patienceMs = 120_000;

let peer: Peer | undefined;

function open(): Peer {
  if (!peer) throw new Error('no peer is open');
  return peer;
}

export const peerTasks = {
  async openPeer(on: { name: PeerName; url: string }): Promise<void> {
    const { openPeer } = await modules[on.name]();
    peer = await openPeer(on.url);
  },

  /** `jobs` is a whole number of thousands, or less than one. */
  async peerFill({ jobs }: { jobs: number }): Promise<void> {
    const batch = Math.min(fillBatch, jobs);
    await drive(fillInFlight, forCount(Math.ceil(jobs / batch), batches(batch)));
  },

  peerDrain: (on: { mode: PeerMode; jobs: number }): Promise<Untimed> =>
    inTime(patienceMs, open().drain(on.mode, on.jobs), `${on.jobs} jobs were not carried out`),

  peerSubmitBatches: (on: { batch: number; inFlight: number; durationMs: number }): Promise<Round> =>
    drive(on.inFlight, forDuration(on.durationMs, batches(on.batch))),

  peerSubmitSingly(on: { inFlight: number; durationMs: number }): Promise<Round> {
    const submit = async () => {
      await open().submitOne();
      return 1;
    };
    return drive(on.inFlight, forDuration(on.durationMs, submit));
  },
};

const batches = (batch: number) => async (): Promise<number> => {
  await open().submitBatch(batch);
  return batch;
};

export async function closePeer(): Promise<void> {
  await peer?.close();
  peer = undefined;
}

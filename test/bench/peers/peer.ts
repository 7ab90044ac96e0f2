/** Job queues of other people, measured beside ours: each in a process of its own, which knows them by these words. */
import type { Untimed } from '../load/drive.ts';

/** What is measured of somebody else's queue: what it does as it comes, and what its documentation says is fastest. */
export type PeerMode = 'default' | 'fastest';

/**
 * Somebody else's queue, open on an empty database of its own until `close`. What it promises is its own affair, but for
 * this: what is submitted is in the database when the promise resolves, and what is drained is completed there.
 */
export interface Peer {
  submitBatch(jobs: number): Promise<void>;
  submitOne(): Promise<void>;
  /** Carries out so many queued jobs, from the start of the first until the last is completed. */
  drain(mode: PeerMode, jobs: number): Promise<Untimed>;
  close(): Promise<void>;
}

/** The module of a peer. */
export interface PeerModule {
  /** Makes what it needs at a `postgres://` or `redis://` address. */
  openPeer(url: string): Promise<Peer>;
}

/** What every job is called, where it has to be called something. */
export const jobName = 'bench.work';

/** What the load process does to file leases. Requests differ by owner and path, so each is encoded when it is sent. */
import { create, toBinary } from '@bufbuild/protobuf';
import { AcquireFileLeasesRequestSchema } from '../../../gen/leasehold/v1/files_pb.js';
import { drive, forCount, forDuration, type Round } from './drive.ts';
import { type GrpcTarget, linksTo, nth } from './targets.ts';

const path = '/leasehold.v1.FileLeasesService/AcquireFileLeases';

/** The first byte of an answer is the tag of its outcome. */
const tags = { granted: 0x0a, contended: 0x12 } as const;
type Outcome = keyof typeof tags;

export interface FileRound extends Round {
  /** Answers of another kind than was expected. */
  wrong: number;
}

interface Order {
  target: GrpcTarget;
  inFlight: number;
}

const repository = 'git@example.org:bench/project.git';

/** Paths are numbered over all rounds, so that none is asked for by two that should not meet. */
let paths = 0;

function asker({ target }: Order, outcome: Outcome, pathOf: () => string, ownerOf: (lane: number) => string) {
  const open = linksTo(target);
  const state = { wrong: 0 };
  const ask = async (lane: number) => {
    const message = { ownerId: ownerOf(lane), repository, paths: [pathOf()] };
    const request = Buffer.from(
      toBinary(AcquireFileLeasesRequestSchema, create(AcquireFileLeasesRequestSchema, message)),
    );
    const answer = await nth(open, lane).call(path, request);
    if (answer[0] !== tags[outcome]) state.wrong++;
    return 1;
  };
  return { ask, state };
}

const lane = (number: number): string => `owner-${number}`;
const heldPath = (number: number): string => `held/${number}.ts`;

export const fileTasks = {
  /** Every call is for a file that nobody has. */
  async acquireFiles(on: Order & { durationMs: number }): Promise<FileRound> {
    const { ask, state } = asker(on, 'granted', () => `src/module-${paths++}.ts`, lane);
    return { ...(await drive(on.inFlight, forDuration(on.durationMs, ask))), ...state };
  },

  /** One owner takes so many files, for others to be denied. */
  async holdFiles(on: Order & { from: number; files: number }): Promise<FileRound> {
    let next = on.from;
    const { ask, state } = asker(
      on,
      'granted',
      () => heldPath(next++),
      () => 'holder',
    );
    return { ...(await drive(on.inFlight, forCount(on.files, ask))), ...state };
  },

  /** The one that holds is heard, which keeps it alive for another minute. */
  async keepHolder(on: Order): Promise<void> {
    const { ask, state } = asker(
      on,
      'granted',
      () => heldPath(0),
      () => 'holder',
    );
    await ask(0);
    if (state.wrong > 0) throw new Error('the holder has lost a file');
  },

  /** Owners who each ask for one of the held files again and again, and are told the same. */
  async waitForFiles(on: Order & { owners: number; durationMs: number }): Promise<FileRound> {
    let next = 0;
    const { ask, state } = asker(
      on,
      'contended',
      () => heldPath(0),
      () => `waiter-${next++ % on.owners}`,
    );
    return { ...(await drive(on.inFlight, forDuration(on.durationMs, ask))), ...state };
  },

  /** Every call is the first of its owner for a held file: a contention is written for each. */
  async contendForFiles(on: Order & { from: number; calls: number }): Promise<FileRound> {
    let next = on.from;
    const { ask, state } = asker(
      on,
      'contended',
      () => heldPath(next++),
      (number) => `rival-${number}`,
    );
    return { ...(await drive(on.inFlight, forCount(on.calls, ask))), ...state };
  },
};

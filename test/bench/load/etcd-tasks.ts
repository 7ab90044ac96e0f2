/** What the load process can be asked to do with an etcd, whose few messages are written by hand. */
import { setTimeout as delay } from 'node:timers/promises';
import { drive, forDuration, type Round } from './drive.ts';
import { type MessageStream, withHeadroom } from './link.ts';
import { type GrpcTarget, linksTo, nth } from './targets.ts';

const paths = { grant: '/etcdserverpb.Lease/LeaseGrant', keepAlive: '/etcdserverpb.Lease/LeaseKeepAlive' };
const ttlS = 3_600;
const tries = 50;
const pauseMs = 200;

const varintField = (field: number, value: number): number[] => {
  const bytes = [field << 3];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  return [...bytes, rest];
};

const grantRequest = (lease: number) => Buffer.from([...varintField(1, ttlS), ...varintField(2, lease)]);
const keepRequest = (lease: number) => withHeadroom(Buffer.from(varintField(1, lease)));

/** Answers come in the order of the questions. */
class KeepAlives {
  readonly #stream: MessageStream;
  readonly #waiting: { resolve: (kept: number) => void; reject: (error: Error) => void }[] = [];

  constructor(target: GrpcTarget, number: number) {
    this.#stream = nth(linksTo(target), number).open(paths.keepAlive, {
      message: () => this.#waiting.shift()?.resolve(1),
      ended: (error) => {
        for (const { reject } of this.#waiting.splice(0)) reject(error);
      },
    });
  }

  keep(request: Buffer): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#stream.send(request);
    });
  }
}

const streams = new Map<string, KeepAlives[]>();

export const forgetEtcd = (): void => streams.clear();

async function open(target: GrpcTarget & { streams: number }, leases: number): Promise<KeepAlives[]> {
  const known = streams.get(target.address);
  if (known) return known;
  for (let lease = 1; lease <= leases; lease++) await grant(target, lease);
  const opened = Array.from({ length: target.streams }, (_, i) => new KeepAlives(target, i));
  streams.set(target.address, opened);
  return opened;
}

/** A server that listens may have no leader yet. */
async function grant(target: GrpcTarget, lease: number): Promise<void> {
  for (let left = tries; ; left--) {
    try {
      await nth(linksTo(target), 0).call(paths.grant, grantRequest(lease));
      return;
    } catch (error) {
      if (left === 0) throw error;
      await delay(pauseMs);
    }
  }
}

export const etcdTasks = {
  async keepEtcdLeases(on: {
    target: GrpcTarget & { streams: number };
    leases: number;
    inFlight: number;
    durationMs: number;
  }): Promise<Round> {
    const opened = await open(on.target, on.leases);
    const requests = Array.from({ length: on.leases }, (_, i) => keepRequest(i + 1));
    let turn = 0;
    const keep = (lane: number) => nth(opened, lane).keep(nth(requests, turn++));
    return drive(opened.length * on.inFlight, forDuration(on.durationMs, keep));
  },
};

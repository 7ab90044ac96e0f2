import { expect } from 'chai';
import { Waker } from '../../src/engine/waker.ts';
import type { Channel } from '../../src/store/channel.ts';

/** A channel on which several servers hear each other at once, and of which a test can count the messages. */
function network() {
  const listeners: ((message: string) => void)[] = [];
  const sent: string[] = [];
  const channel = (): Channel => ({
    start: (onMessage, onListening) => {
      listeners.push(onMessage);
      onListening?.();
    },
    send: (message) => {
      sent.push(message);
      for (const listener of listeners) listener(message);
    },
    stop: async () => {},
  });
  return { sent, channel };
}

/** Counts how often it is rung. */
function bell() {
  let rings = 0;
  return { ring: () => rings++, rings: () => rings };
}

describe('the waker', () => {
  it('wakes who waits for a job that was changed, and nobody else', () => {
    const waker = new Waker(network().channel());
    const [a, b] = [bell(), bell()];
    waker.waitForJob('a', a.ring);
    const stop = waker.waitForJob('b', b.ring);
    waker.publishJobs(['a']);
    expect([a.rings(), b.rings()]).to.deep.equal([1, 0]);
    stop();
    waker.publishJobs(['a', 'b']);
    expect([a.rings(), b.rings()]).to.deep.equal([2, 0]);
  });

  it('wakes everybody on a round, so that a lost message costs no more than that', async () => {
    const waker = new Waker(network().channel());
    const a = bell();
    waker.waitForJob('a', a.ring);
    await waker.runOnce();
    expect(a.rings()).to.equal(1);
  });

  it('tells other servers only while one of them has somebody waiting', async () => {
    const { sent, channel } = network();
    const [here, there] = [new Waker(channel()), new Waker(channel())];
    here.start();
    there.start();
    try {
      // At its start each has asked who waits elsewhere, and nobody does.
      expect(sent.splice(0)).to.have.length(2);
      here.publishJobs(['a']);
      expect(sent).to.deep.equal([]);
      const a = bell();
      there.waitForJob('a', a.ring);
      here.publishJobs(['a']);
      expect(a.rings()).to.equal(1);
      expect(sent).to.have.length(2);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('tells of files here and, where somebody follows them, on other servers', async () => {
    const { sent, channel } = network();
    const [here, there] = [new Waker(channel()), new Waker(channel())];
    const [near, far] = [bell(), bell()];
    let followers = 0;
    here.onFiles(near.ring);
    there.onFiles(far.ring);
    there.countWaiters(() => followers);
    here.start();
    there.start();
    try {
      sent.splice(0);
      here.publishFiles();
      expect([near.rings(), far.rings(), sent.length]).to.deep.equal([1, 0, 0]);
      followers = 1;
      there.announce();
      here.publishFiles();
      expect([near.rings(), far.rings()]).to.deep.equal([2, 1]);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('learns at its start of those who wait already, without waiting for them to say so again', async () => {
    const { channel } = network();
    const [here, there] = [new Waker(channel()), new Waker(channel())];
    there.start();
    const a = bell();
    there.waitForJob('a', a.ring);
    here.start();
    try {
      here.publishJobs(['a']);
      expect(a.rings()).to.equal(1);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('cuts long lists of jobs into messages that fit a NOTIFY', () => {
    const { sent, channel } = network();
    const [here, there] = [new Waker(channel()), new Waker(channel())];
    here.start();
    there.start();
    there.waitForJob('a', () => {});
    here.publishJobs(Array.from({ length: 1_000 }, () => '01a1ee36-d48a-7700-ae32-2772a327ad1c'));
    expect(sent.length).to.be.above(5);
    for (const message of sent) expect(message.length).to.be.below(8_000);
    return Promise.all([here.stop(), there.stop()]);
  });

  it('cuts work of many streams into messages that fit a NOTIFY, whatever letters their names have', () => {
    const { sent, channel } = network();
    const [here, there] = [new Waker(channel()), new Waker(channel())];
    here.start();
    there.start();
    there.waitForJob('a', () => {});
    sent.splice(0);
    const streams = Array.from({ length: 200 }, (_, i) => [`${'流'.repeat(60)}${i}`, 1] as const);
    here.publishWork({ jobs: new Map(streams), room: 0 });
    expect(sent.length).to.be.above(3);
    for (const message of sent) expect(Buffer.byteLength(message)).to.be.below(8_000);
    return Promise.all([here.stop(), there.stop()]);
  });

  it('wakes everybody for the last time when it stops, and may be started and stopped twice', async () => {
    const waker = new Waker(network().channel());
    const a = bell();
    waker.start();
    waker.start();
    waker.waitForJob('a', a.ring);
    await waker.stop();
    expect(a.rings()).to.equal(1);
    await waker.stop();
  });
});

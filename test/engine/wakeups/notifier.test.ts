import { expect } from 'chai';
import { Notifier } from '../../../src/engine/wakeups/notifier.ts';
import type { Channel } from '../../../src/store/connection/notify-channel.ts';

/** A channel that connects several servers synchronously and counts their messages. */
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

/** Counts its calls. */
function bell() {
  let rings = 0;
  return { ring: () => rings++, rings: () => rings };
}

describe('Notifier', () => {
  it('wakes only waiters of a changed job', () => {
    const waker = new Notifier(network().channel());
    const [a, b] = [bell(), bell()];
    waker.waitForJob('a', a.ring);
    const stop = waker.waitForJob('b', b.ring);
    waker.publishJobs(['a']);
    expect([a.rings(), b.rings()]).to.deep.equal([1, 0]);
    stop();
    waker.publishJobs(['a', 'b']);
    expect([a.rings(), b.rings()]).to.deep.equal([2, 0]);
  });

  it('wakes all waiters in each round, which bounds the cost of a lost message', async () => {
    const waker = new Notifier(network().channel());
    const a = bell();
    waker.waitForJob('a', a.ring);
    await waker.runOnce();
    expect(a.rings()).to.equal(1);
  });

  it('notifies other servers only while one of them has a waiter', async () => {
    const { sent, channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    here.start();
    there.start();
    try {
      // At its start each server has asked for waiters elsewhere, and there are none.
      expect(sent.splice(0)).to.have.length(2);
      here.publishJobs(['a']);
      expect(sent).to.deep.equal([]);
      const a = bell();
      there.waitForJob('a', a.ring);
      expect(sent.splice(0), 'the announcement, and that it was heard').to.have.length(2);
      const rings = a.rings();
      here.publishJobs(['a']);
      expect(a.rings()).to.equal(rings + 1);
      expect(sent).to.have.length(1);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('notifies of files locally and, while another server has a listener, there', async () => {
    const { sent, channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    const [near, far] = [bell(), bell()];
    let followers = 0;
    here.onFiles(near.ring);
    there.onFiles(far.ring);
    there.addListenerCount(() => followers);
    here.start();
    there.start();
    try {
      sent.splice(0);
      const atStart = [near.rings(), far.rings()] as const;
      here.publishFiles();
      expect([near.rings(), far.rings(), sent.length]).to.deep.equal([atStart[0] + 1, atStart[1], 0]);
      followers = 1;
      there.announce();
      const rings = far.rings();
      here.publishFiles();
      expect([near.rings(), far.rings()]).to.deep.equal([atStart[0] + 2, rings + 1]);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('learns of existing waiters at its start, without a new announcement', async () => {
    const { channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    there.start();
    const a = bell();
    there.waitForJob('a', a.ring);
    here.start();
    try {
      const rings = a.rings();
      here.publishJobs(['a']);
      expect(a.rings()).to.equal(rings + 1);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('wakes all waiters of a server when another one first learns of it', async () => {
    const { channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    const [job, work, files] = [bell(), bell(), bell()];
    let waiting = 0;
    there.addListenerCount(() => waiting);
    there.onMissed(work.ring);
    there.onFiles(files.ring);
    here.start();
    there.start();
    try {
      const before = [work.rings(), files.rings()];
      const [workBefore = 0, filesBefore = 0] = before;
      // A request there was denied and has not yet announced that it waits.
      here.publishWorkAvailable({ jobs: new Map([['', 1]]), unitsFreed: 0 });
      expect([work.rings(), files.rings()]).to.deep.equal(before);
      waiting = 1;
      there.waitForJob('a', job.ring);
      expect([job.rings(), work.rings(), files.rings()]).to.deep.equal([1, workBefore + 1, filesBefore + 1]);
      // From now on the other server is notified, and need not recheck.
      there.announce();
      expect(work.rings()).to.equal(workBefore + 1);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('rechecks only on the server whose announcement was heard', async () => {
    const { channel } = network();
    const wakers = [new Notifier(channel()), new Notifier(channel()), new Notifier(channel())];
    const [, there, third] = wakers;
    for (const waker of wakers) waker.start();
    const rung = bell();
    third?.onMissed(rung.ring);
    there?.waitForJob('a', () => {});
    expect(rung.rings()).to.equal(0);
    await Promise.all(wakers.map((waker) => waker.stop()));
  });

  it('rechecks, asks and announces whenever its connection is restored', async () => {
    const { channel, sent } = network();
    const opened: (() => void)[] = [];
    const cutOff = channel();
    const here = new Notifier({
      ...cutOff,
      start: (onMessage, onListening = () => {}) => {
        opened.push(onListening);
        cutOff.start(onMessage, onListening);
      },
    });
    const there = new Notifier(channel());
    here.start();
    there.start();
    const [job, work] = [bell(), bell()];
    here.onMissed(work.ring);
    here.waitForJob('a', job.ring);
    there.waitForJob('b', () => {});
    try {
      const [jobBefore, workBefore] = [job.rings(), work.rings()];
      sent.splice(0);
      // The connection was lost and is restored.
      for (const open of opened) open();
      expect([job.rings(), work.rings()]).to.deep.equal([jobBefore + 1, workBefore + 1]);
      const said = sent.map((text) =>
        Object.keys(JSON.parse(text))
          .filter((key) => key !== 'number')
          .at(-1),
      );
      expect(said).to.deep.equal(['asking', 'waiting', 'heard', 'waiting']);
    } finally {
      await here.stop();
      await there.stop();
    }
  });

  it('makes every message unique, because PostgreSQL drops duplicate notifications', async () => {
    const { sent, channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    here.start();
    there.start();
    there.waitForJob('a', () => {});
    sent.splice(0);
    for (let n = 0; n < 3; n++) here.publishWorkAvailable({ jobs: new Map([['', 1]]), unitsFreed: 0 });
    expect(new Set(sent).size).to.equal(3);
    await Promise.all([here.stop(), there.stop()]);
  });

  it('splits long lists of jobs into messages that fit a NOTIFY', () => {
    const { sent, channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    here.start();
    there.start();
    there.waitForJob('a', () => {});
    here.publishJobs(Array.from({ length: 1_000 }, () => '01a1ee36-d48a-7700-ae32-2772a327ad1c'));
    expect(sent.length).to.be.above(5);
    for (const message of sent) expect(message.length).to.be.below(8_000);
    return Promise.all([here.stop(), there.stop()]);
  });

  it('splits work of many streams into messages that fit a NOTIFY, in bytes', () => {
    const { sent, channel } = network();
    const [here, there] = [new Notifier(channel()), new Notifier(channel())];
    here.start();
    there.start();
    there.waitForJob('a', () => {});
    sent.splice(0);
    const streams = Array.from({ length: 200 }, (_, i) => [`${'流'.repeat(60)}${i}`, 1] as const);
    here.publishWorkAvailable({ jobs: new Map(streams), unitsFreed: 0 });
    expect(sent.length).to.be.above(3);
    for (const message of sent) expect(Buffer.byteLength(message)).to.be.below(8_000);
    return Promise.all([here.stop(), there.stop()]);
  });

  it('wakes all waiters a last time when it stops; start and stop are idempotent', async () => {
    const waker = new Notifier(network().channel());
    const a = bell();
    waker.start();
    waker.start();
    waker.waitForJob('a', a.ring);
    await waker.stop();
    expect(a.rings()).to.equal(1);
    await waker.stop();
  });
});

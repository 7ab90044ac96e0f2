import { mock } from 'node:test';
import { expect } from 'chai';
import {
  type RequestClass,
  type Waiter,
  WaitQueue,
  type WaitReason,
} from '../../../src/engine/wakeups/wait-queue.ts';

const long = 60_000;

interface How {
  ms?: number;
  wants?: WaitReason;
  signal?: AbortSignal;
}

/** A wakeup for `count` jobs, without a stream or of one. */
const jobs = (count: number, stream = '') => ({ jobs: new Map([[stream, count]]), unitsFreed: 0 });
const room = (count: number) => ({ jobs: new Map<string, number>(), unitsFreed: count });
const classOf = (name: string, ...streams: string[]) => ({
  name,
  streams: streams.length === 0 ? [''] : streams,
});
const k = classOf('k');

/** A wait queue with named waiters that records the order in which they are woken. */
function namedQueue(ready: () => string[] = () => []) {
  const queue = new WaitQueue({ findReady: async () => ready() });
  const gone: string[] = [];
  const wait = (name: string, waiter: Waiter, { ms = long, wants = 'jobs', signal }: How = {}) =>
    queue.wait(waiter, ms, wants, signal).then(() => void gone.push(name));
  const come = (name: string, { requestClass = k, ...how }: How & { requestClass?: RequestClass } = {}) =>
    wait(name, queue.join(requestClass), how);
  return { queue, gone, wait, come };
}

/** Lets callbacks of settled promises run. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('WaitQueue', () => {
  it('wakes waiters in their order, one for each job', async () => {
    const { queue, gone, come } = namedQueue();
    const all = ['a', 'b', 'c', 'd'].map((name) => come(name));
    queue.wakeFor(jobs(1));
    await settled();
    expect(gone).to.deep.equal(['a']);
    queue.wakeFor(jobs(2));
    await settled();
    expect(gone).to.deep.equal(['a', 'b', 'c']);
    expect(queue.length).to.equal(1);
    queue.stop();
    await Promise.all(all);
  });

  it('returns woken waiters to their old position, in whatever order they come back', async () => {
    const { queue, gone, wait } = namedQueue();
    const [first, second, third] = [queue.join(k), queue.join(k), queue.join(k)];
    const all = [wait('first', first), wait('second', second), wait('third', third)];
    queue.wakeFor(jobs(2));
    await settled();
    expect(gone).to.deep.equal(['first', 'second']);
    all.push(wait('second again', second), wait('first again', first), wait('fourth', queue.join(k)));
    for (let i = 0; i < 4; i++) {
      queue.wakeFor(jobs(1));
      await settled();
    }
    expect(gone.slice(2)).to.deep.equal(['first again', 'second again', 'third', 'fourth']);
    await Promise.all(all);
  });

  it('wakes a request that was being decided when jobs arrived, once per job', async () => {
    const { queue, gone, wait } = namedQueue();
    const waiters = ['a', 'b', 'c'].map(() => queue.join(k));
    queue.wakeFor(jobs(2));
    const all = waiters.map((waiter, i) => wait(`${i}`, waiter));
    await settled();
    expect([gone, queue.length]).to.deep.equal([['0', '1'], 1]);
    queue.stop();
    await Promise.all(all);
  });

  it('keeps no wakeup for later waiters or for those that left', async () => {
    const { queue, gone, come } = namedQueue();
    const stays = queue.join(k);
    const leaves = queue.join(k);
    queue.wakeFor(jobs(2));
    queue.leave(leaves, false);
    await queue.wait(stays, long, 'jobs');
    const later = come('later');
    await settled();
    expect([gone, queue.length]).to.deep.equal([[], 1]);
    queue.stop();
    await later;
  });

  it('wakes the next waiter for one that left without asking', async () => {
    const { queue, gone, wait } = namedQueue();
    const waiters = ['a', 'b', 'c'].map(() => queue.join(k));
    const all = waiters.map((waiter, i) => wait(`${i}`, waiter));
    queue.wakeFor(jobs(1));
    await settled();
    queue.leave(waiters[0] as Waiter, false);
    await settled();
    expect(gone).to.deep.equal(['0', '1']);
    queue.leave(waiters[1] as Waiter, true);
    await settled();
    expect(gone, 'after one that got its job').to.deep.equal(['0', '1']);
    queue.stop();
    await Promise.all(all);
  });

  it('wakes the first on a recheck, and two more for each waiter that got a job', async () => {
    const { queue, gone, wait } = namedQueue(() => ['']);
    const waiters = ['a', 'b', 'c', 'd', 'e', 'f'].map(() => queue.join(k));
    const all = waiters.map((waiter, i) => wait(`${i}`, waiter));
    queue.recheck();
    await settled();
    expect(gone).to.deep.equal(['0']);
    queue.leave(waiters[0] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '1', '2']);
    queue.leave(waiters[1] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '1', '2', '3', '4']);
    const back = ['2', '3', '4'].map((name) => wait(`${name} again`, waiters[Number(name)] as Waiter));
    await settled();
    expect(gone, 'nothing was left').to.have.length(5);
    queue.stop();
    await Promise.all([...all, ...back]);
  });

  it('repeats a recheck that may have begun too early, and wakes requests in progress', async () => {
    let looks = 0;
    const answers: ((ready: string[]) => void)[] = [];
    const queue = new WaitQueue({
      findReady: () => {
        looks++;
        return new Promise((resolve) => answers.push(resolve));
      },
    });
    const waiter = queue.join(k);
    queue.recheck();
    queue.recheck();
    expect(looks).to.equal(1);
    answers.shift()?.([]);
    await settled();
    expect(looks, 'the first look may have begun too early').to.equal(2);
    answers.shift()?.(['']);
    await settled();
    await queue.wait(waiter, long, 'jobs');
    expect([looks, queue.length]).to.deep.equal([2, 0]);
    queue.leave(waiter, false);
    queue.recheck();
    expect(looks, 'nobody is there any more').to.equal(2);
  });

  it('wakes two more after a grant for freed units, which may suffice for several', async () => {
    const { queue, gone, wait } = namedQueue();
    const waiters = ['a', 'b', 'c', 'd'].map(() => queue.join(k));
    const all = waiters.map((waiter, i) => wait(`${i}`, waiter, { wants: 'room' }));
    queue.wakeFor(room(1));
    await settled();
    expect(gone).to.deep.equal(['0']);
    queue.leave(waiters[0] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '1', '2']);
    queue.leave(waiters[1] as Waiter, false);
    await Promise.all(all);
    expect(gone).to.deep.equal(['0', '1', '2', '3']);
  });

  it("wakes the first waiter for a job's stream, of any request class, and no other", async () => {
    const { queue, gone, come } = namedQueue();
    const classes = {
      plain: classOf('plain'),
      x: classOf('x', 's', 't'),
      y: classOf('y', 's'),
      z: classOf('z', 't'),
    };
    const all = ['1', '2'].flatMap((number) =>
      Object.entries(classes).map(([name, requestClass]) => come(`${name}${number}`, { requestClass })),
    );
    queue.wakeFor(jobs(1, 's'));
    await settled();
    expect(gone).to.deep.equal(['x1']);
    queue.wakeFor(jobs(3, 't'));
    await settled();
    expect(gone.slice(1)).to.deep.equal(['z1', 'x2', 'z2']);
    queue.wakeFor(jobs(1));
    await settled();
    expect(gone.slice(4)).to.deep.equal(['plain1']);
    queue.wakeFor(jobs(9, 's'));
    await settled();
    expect(gone.slice(5)).to.deep.equal(['y1', 'y2']);
    queue.stop();
    await Promise.all(all);
  });

  it('passes a wakeup to the next of another request class when a waiter got nothing', async () => {
    const { queue, gone, wait } = namedQueue();
    const [x, y] = [classOf('x', 's'), classOf('y', 's')];
    const waiters = [x, x, y, y].map((requestClass) => queue.join(requestClass));
    const all = waiters.map((waiter, i) => wait(`${i}`, waiter));
    queue.wakeFor(jobs(1, 's'));
    await settled();
    all.push(wait('0 again', waiters[0] as Waiter));
    await settled();
    expect(gone).to.deep.equal(['0', '2']);
    queue.leave(waiters[2] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '2']);
    queue.stop();
    await Promise.all(all);
  });

  it('passes a wakeup to the next of the same class when the waiter may not have the job', async () => {
    const { queue, gone, wait } = namedQueue();
    const waiters = ['a', 'b'].map(() => queue.join(k));
    const all = waiters.map((waiter, i) => wait(`${i}`, waiter));
    queue.wakeFor(jobs(1));
    await settled();
    all.push(wait('0 again', waiters[0] as Waiter, { wants: 'barred' }));
    await settled();
    expect(gone).to.deep.equal(['0', '1']);
    queue.stop();
    await Promise.all(all);
  });

  it('wakes waiters that lacked units, and requests in progress, for freed units', async () => {
    const { queue, gone, come, wait } = namedQueue();
    const asking = queue.join(classOf('asks'));
    const all = [
      come('lacks jobs', { requestClass: classOf('jobs') }),
      come('lacks room', { requestClass: classOf('room'), wants: 'room' }),
    ];
    queue.wakeFor(room(1));
    await settled();
    expect(gone).to.deep.equal(['lacks room']);
    all.push(wait('asked', asking));
    await settled();
    expect(gone).to.deep.equal(['lacks room', 'asked']);
    queue.stop();
    await Promise.all(all);
  });

  it('forgets canceled waiters and wakes the next one instead', async () => {
    const { queue, gone, come } = namedQueue();
    const leaver = new AbortController();
    const all = [come('leaver', { signal: leaver.signal }), come('next')];
    leaver.abort();
    await settled();
    expect([gone, queue.length]).to.deep.equal([['leaver'], 1]);
    queue.wakeFor(jobs(1));
    await Promise.all(all);
    expect(gone).to.deep.equal(['leaver', 'next']);
    expect(queue.length).to.equal(0);
  });

  it('keeps no waiter with a canceled call, and none after it was stopped', async () => {
    const { queue, come } = namedQueue();
    await come('gone', { signal: AbortSignal.abort() });
    const waiting = come('waiting');
    queue.stop();
    await waiting;
    await come('late');
    expect(queue.length).to.equal(0);
  });

  describe('with a fake clock', () => {
    beforeEach(() => mock.timers.enable({ apis: ['setTimeout', 'setInterval'] }));
    afterEach(() => mock.timers.reset());

    it('wakes waiters when their time has passed', async () => {
      const { queue, gone, come } = namedQueue();
      const all = [come('short', { ms: 500 }), come('long', { ms: 1_500 })];
      mock.timers.tick(500);
      await settled();
      expect([gone, queue.length]).to.deep.equal([['short'], 1]);
      mock.timers.tick(1_000);
      await Promise.all(all);
      expect(queue.length).to.equal(0);
    });

    it('wakes the first of each stream with jobs every 2 s, in case a message was lost', async () => {
      let looks = 0;
      const { queue, gone, come } = namedQueue(() => {
        looks++;
        return ['s', 't'];
      });
      const [x, y, z] = [classOf('x', 's'), classOf('y', 'u', 't'), classOf('z', 'u')];
      const nobody = come('z1', { requestClass: z });
      const all = [
        come('x1', { requestClass: x }),
        come('x2', { requestClass: x }),
        come('y1', { requestClass: y }),
      ];
      mock.timers.tick(1_999);
      await settled();
      expect(gone).to.deep.equal([]);
      mock.timers.tick(1);
      await settled();
      expect(gone).to.have.members(['x1', 'y1']);
      mock.timers.tick(2_000);
      await Promise.all(all);
      expect([gone.includes('z1'), looks]).to.deep.equal([false, 2]);
      queue.stop();
      await nobody;
      mock.timers.tick(10_000);
      await settled();
      expect(looks, 'while nobody waits').to.equal(2);
    });
  });
});

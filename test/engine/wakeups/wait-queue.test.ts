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
const kindOf = (name: string, ...streams: string[]) => ({
  name,
  streams: streams.length === 0 ? [''] : streams,
});
const k = kindOf('k');

/** A wait queue with named waiters that records the order in which they are woken. */
function namedLine(ready: () => string[] = () => []) {
  const line = new WaitQueue({ findReady: async () => ready() });
  const gone: string[] = [];
  const wait = (name: string, place: Waiter, { ms = long, wants = 'jobs', signal }: How = {}) =>
    line.wait(place, ms, wants, signal).then(() => void gone.push(name));
  const come = (name: string, { kind = k, ...how }: How & { kind?: RequestClass } = {}) =>
    wait(name, line.join(kind), how);
  return { line, gone, wait, come };
}

/** Lets callbacks of settled promises run. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('WaitQueue', () => {
  it('wakes waiters in their order, one for each job', async () => {
    const { line, gone, come } = namedLine();
    const all = ['a', 'b', 'c', 'd'].map((name) => come(name));
    line.wakeFor(jobs(1));
    await settled();
    expect(gone).to.deep.equal(['a']);
    line.wakeFor(jobs(2));
    await settled();
    expect(gone).to.deep.equal(['a', 'b', 'c']);
    expect(line.length).to.equal(1);
    line.stop();
    await Promise.all(all);
  });

  it('returns woken waiters to their old position, in whatever order they come back', async () => {
    const { line, gone, wait } = namedLine();
    const [first, second, third] = [line.join(k), line.join(k), line.join(k)];
    const all = [wait('first', first), wait('second', second), wait('third', third)];
    line.wakeFor(jobs(2));
    await settled();
    expect(gone).to.deep.equal(['first', 'second']);
    all.push(wait('second again', second), wait('first again', first), wait('fourth', line.join(k)));
    for (let i = 0; i < 4; i++) {
      line.wakeFor(jobs(1));
      await settled();
    }
    expect(gone.slice(2)).to.deep.equal(['first again', 'second again', 'third', 'fourth']);
    await Promise.all(all);
  });

  it('wakes a request that was being decided when jobs arrived, once per job', async () => {
    const { line, gone, wait } = namedLine();
    const places = ['a', 'b', 'c'].map(() => line.join(k));
    line.wakeFor(jobs(2));
    const all = places.map((place, i) => wait(`${i}`, place));
    await settled();
    expect([gone, line.length]).to.deep.equal([['0', '1'], 1]);
    line.stop();
    await Promise.all(all);
  });

  it('keeps no wakeup for later waiters or for those that left', async () => {
    const { line, gone, come } = namedLine();
    const stays = line.join(k);
    const leaves = line.join(k);
    line.wakeFor(jobs(2));
    line.leave(leaves, false);
    await line.wait(stays, long, 'jobs');
    const later = come('later');
    await settled();
    expect([gone, line.length]).to.deep.equal([[], 1]);
    line.stop();
    await later;
  });

  it('wakes the next waiter for one that left without asking', async () => {
    const { line, gone, wait } = namedLine();
    const places = ['a', 'b', 'c'].map(() => line.join(k));
    const all = places.map((place, i) => wait(`${i}`, place));
    line.wakeFor(jobs(1));
    await settled();
    line.leave(places[0] as Waiter, false);
    await settled();
    expect(gone).to.deep.equal(['0', '1']);
    line.leave(places[1] as Waiter, true);
    await settled();
    expect(gone, 'after one that got its job').to.deep.equal(['0', '1']);
    line.stop();
    await Promise.all(all);
  });

  it('wakes the first on a recheck, and two more for each waiter that got a job', async () => {
    const { line, gone, wait } = namedLine(() => ['']);
    const places = ['a', 'b', 'c', 'd', 'e', 'f'].map(() => line.join(k));
    const all = places.map((place, i) => wait(`${i}`, place));
    line.recheck();
    await settled();
    expect(gone).to.deep.equal(['0']);
    line.leave(places[0] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '1', '2']);
    line.leave(places[1] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '1', '2', '3', '4']);
    const back = ['2', '3', '4'].map((name) => wait(`${name} again`, places[Number(name)] as Waiter));
    await settled();
    expect(gone, 'nothing was left').to.have.length(5);
    line.stop();
    await Promise.all([...all, ...back]);
  });

  it('repeats a recheck that may have begun too early, and wakes requests in progress', async () => {
    let looks = 0;
    const answers: ((ready: string[]) => void)[] = [];
    const line = new WaitQueue({
      findReady: () => {
        looks++;
        return new Promise((resolve) => answers.push(resolve));
      },
    });
    const place = line.join(k);
    line.recheck();
    line.recheck();
    expect(looks).to.equal(1);
    answers.shift()?.([]);
    await settled();
    expect(looks, 'the first look may have begun too early').to.equal(2);
    answers.shift()?.(['']);
    await settled();
    await line.wait(place, long, 'jobs');
    expect([looks, line.length]).to.deep.equal([2, 0]);
    line.leave(place, false);
    line.recheck();
    expect(looks, 'nobody is there any more').to.equal(2);
  });

  it('wakes two more after a grant for freed units, which may suffice for several', async () => {
    const { line, gone, wait } = namedLine();
    const places = ['a', 'b', 'c', 'd'].map(() => line.join(k));
    const all = places.map((place, i) => wait(`${i}`, place, { wants: 'room' }));
    line.wakeFor(room(1));
    await settled();
    expect(gone).to.deep.equal(['0']);
    line.leave(places[0] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '1', '2']);
    line.leave(places[1] as Waiter, false);
    await Promise.all(all);
    expect(gone).to.deep.equal(['0', '1', '2', '3']);
  });

  it("wakes the first waiter for a job's stream, of whatever kind, and no other", async () => {
    const { line, gone, come } = namedLine();
    const kinds = {
      plain: kindOf('plain'),
      x: kindOf('x', 's', 't'),
      y: kindOf('y', 's'),
      z: kindOf('z', 't'),
    };
    const all = ['1', '2'].flatMap((number) =>
      Object.entries(kinds).map(([name, kind]) => come(`${name}${number}`, { kind })),
    );
    line.wakeFor(jobs(1, 's'));
    await settled();
    expect(gone).to.deep.equal(['x1']);
    line.wakeFor(jobs(3, 't'));
    await settled();
    expect(gone.slice(1)).to.deep.equal(['z1', 'x2', 'z2']);
    line.wakeFor(jobs(1));
    await settled();
    expect(gone.slice(4)).to.deep.equal(['plain1']);
    line.wakeFor(jobs(9, 's'));
    await settled();
    expect(gone.slice(5)).to.deep.equal(['y1', 'y2']);
    line.stop();
    await Promise.all(all);
  });

  it('passes a wakeup to the next of another kind when a waiter got nothing', async () => {
    const { line, gone, wait } = namedLine();
    const [x, y] = [kindOf('x', 's'), kindOf('y', 's')];
    const places = [x, x, y, y].map((kind) => line.join(kind));
    const all = places.map((place, i) => wait(`${i}`, place));
    line.wakeFor(jobs(1, 's'));
    await settled();
    all.push(wait('0 again', places[0] as Waiter));
    await settled();
    expect(gone).to.deep.equal(['0', '2']);
    line.leave(places[2] as Waiter, true);
    await settled();
    expect(gone).to.deep.equal(['0', '2']);
    line.stop();
    await Promise.all(all);
  });

  it('passes a wakeup to the next of the same kind when the waiter may not have the job', async () => {
    const { line, gone, wait } = namedLine();
    const places = ['a', 'b'].map(() => line.join(k));
    const all = places.map((place, i) => wait(`${i}`, place));
    line.wakeFor(jobs(1));
    await settled();
    all.push(wait('0 again', places[0] as Waiter, { wants: 'barred' }));
    await settled();
    expect(gone).to.deep.equal(['0', '1']);
    line.stop();
    await Promise.all(all);
  });

  it('wakes waiters that lacked units, and requests in progress, for freed units', async () => {
    const { line, gone, come, wait } = namedLine();
    const asking = line.join(kindOf('asks'));
    const all = [
      come('lacks jobs', { kind: kindOf('jobs') }),
      come('lacks room', { kind: kindOf('room'), wants: 'room' }),
    ];
    line.wakeFor(room(1));
    await settled();
    expect(gone).to.deep.equal(['lacks room']);
    all.push(wait('asked', asking));
    await settled();
    expect(gone).to.deep.equal(['lacks room', 'asked']);
    line.stop();
    await Promise.all(all);
  });

  it('forgets canceled waiters and wakes the next one instead', async () => {
    const { line, gone, come } = namedLine();
    const leaver = new AbortController();
    const all = [come('leaver', { signal: leaver.signal }), come('next')];
    leaver.abort();
    await settled();
    expect([gone, line.length]).to.deep.equal([['leaver'], 1]);
    line.wakeFor(jobs(1));
    await Promise.all(all);
    expect(gone).to.deep.equal(['leaver', 'next']);
    expect(line.length).to.equal(0);
  });

  it('keeps no waiter with a canceled call, and none after it was stopped', async () => {
    const { line, come } = namedLine();
    await come('gone', { signal: AbortSignal.abort() });
    const waiting = come('waiting');
    line.stop();
    await waiting;
    await come('late');
    expect(line.length).to.equal(0);
  });

  describe('with a fake clock', () => {
    beforeEach(() => mock.timers.enable({ apis: ['setTimeout', 'setInterval'] }));
    afterEach(() => mock.timers.reset());

    it('wakes waiters when their time has passed', async () => {
      const { line, gone, come } = namedLine();
      const all = [come('short', { ms: 500 }), come('long', { ms: 1_500 })];
      mock.timers.tick(500);
      await settled();
      expect([gone, line.length]).to.deep.equal([['short'], 1]);
      mock.timers.tick(1_000);
      await Promise.all(all);
      expect(line.length).to.equal(0);
    });

    it('wakes the first of each stream with jobs every 2 s, in case a message was lost', async () => {
      let looks = 0;
      const { line, gone, come } = namedLine(() => {
        looks++;
        return ['s', 't'];
      });
      const [x, y, z] = [kindOf('x', 's'), kindOf('y', 'u', 't'), kindOf('z', 'u')];
      const nobody = come('z1', { kind: z });
      const all = [come('x1', { kind: x }), come('x2', { kind: x }), come('y1', { kind: y })];
      mock.timers.tick(1_999);
      await settled();
      expect(gone).to.deep.equal([]);
      mock.timers.tick(1);
      await settled();
      expect(gone).to.have.members(['x1', 'y1']);
      mock.timers.tick(2_000);
      await Promise.all(all);
      expect([gone.includes('z1'), looks]).to.deep.equal([false, 2]);
      line.stop();
      await nobody;
      mock.timers.tick(10_000);
      await settled();
      expect(looks, 'while nobody waits').to.equal(2);
    });
  });
});

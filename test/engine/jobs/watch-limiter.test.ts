import { expect } from 'chai';
import { WatchLimiter } from '../../../src/engine/jobs/watch-limiter.ts';

const always = new AbortController().signal;

describe('WatchLimiter (A6)', () => {
  it('refuses a stream beyond its limit as overloaded, until another one closes', () => {
    const limiter = new WatchLimiter(2);
    const [leave] = [limiter.enter(), limiter.enter()];
    expect(() => limiter.enter()).to.throw('overloaded');
    leave?.();
    leave?.();
    expect(limiter.open).to.equal(1);
    limiter.enter();
    expect(() => limiter.enter()).to.throw('overloaded');
  });

  it('runs three reads at a time in call order, and drops canceled ones', async () => {
    const limiter = new WatchLimiter();
    const begun: number[] = [];
    const ends: (() => void)[] = [];
    const gone = new AbortController();
    const reads = Array.from({ length: 6 }, (_, i) =>
      limiter.read(
        () =>
          new Promise<void>((resolve) => {
            begun.push(i);
            ends.push(resolve);
          }),
        i === 3 ? gone.signal : always,
      ),
    );
    expect(begun).to.deep.equal([0, 1, 2]);
    gone.abort(new Error('gave up'));
    expect(await reads[3]?.catch(String)).to.equal('Error: gave up');
    for (let next = 0; next < 5; next++) {
      ends[next]?.();
      await new Promise(setImmediate);
    }
    await Promise.all(reads.filter((_, i) => i !== 3));
    expect(begun).to.deep.equal([0, 1, 2, 4, 5]);
    const again = await limiter.read(async () => 'read', always);
    expect(again).to.equal('read');
  });

  it('continues after a failed read', async () => {
    const limiter = new WatchLimiter();
    for (let i = 0; i < 10; i++) {
      expect(await limiter.read(() => Promise.reject(new Error('no')), always).catch(String)).to.equal(
        'Error: no',
      );
    }
    expect(await limiter.read(async () => 1, always)).to.equal(1);
  });
});

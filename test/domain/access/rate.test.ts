import { expect } from 'chai';
import fc from 'fast-check';
import { charge, fullBucket, rateOf, waitMs } from '../../../src/domain/access/rate.ts';

const rates = fc.record({
  perS: fc.integer({ min: 1, max: 5_000 }),
  burstS: fc.integer({ min: 1, max: 30 }),
});
const asks = fc.array(
  fc.record({ pauseMs: fc.integer({ min: 0, max: 3_000 }), items: fc.integer({ min: 1, max: 600 }) }),
  { minLength: 1, maxLength: 60 },
);

describe('a rate', () => {
  it('never admits more than its burst, or one larger call, and what the time allows', () => {
    fc.assert(
      fc.property(rates, asks, ({ perS, burstS }, calls) => {
        const rate = rateOf(perS, burstS);
        if (!rate) throw new Error('the rate has no limit');
        const largest = Math.max(...calls.map(({ items }) => items));
        const admitted: { atMs: number; items: number }[] = [];
        let now = 0;
        let bucket = fullBucket;
        for (const { pauseMs, items } of calls) {
          now += pauseMs;
          if (waitMs(bucket, now, items, rate) > 0) continue;
          bucket = charge(bucket, now, items, rate);
          admitted.push({ atMs: now, items });
        }
        for (const [i, first] of admitted.entries()) {
          let sum = 0;
          for (const { atMs, items } of admitted.slice(i)) {
            sum += items;
            const allowed = Math.max(rate.burst, largest) + ((atMs - first.atMs) * perS) / 1_000;
            expect(sum).to.be.at.most(allowed + 0.01);
          }
        }
      }),
    );
  });

  it('admits a refused call after the time that it tells, and not before', () => {
    fc.assert(
      fc.property(rates, asks, ({ perS, burstS }, calls) => {
        const rate = rateOf(perS, burstS);
        if (!rate) throw new Error('the rate has no limit');
        let now = 0;
        let bucket = fullBucket;
        for (const { pauseMs, items } of calls) {
          now += pauseMs;
          const wait = waitMs(bucket, now, items, rate);
          if (wait > 0) {
            expect(waitMs(bucket, now + wait * 0.99, items, rate)).to.be.greaterThan(0);
            now += wait;
            expect(waitMs(bucket, now, items, rate)).to.equal(0);
          }
          bucket = charge(bucket, now, items, rate);
        }
      }),
    );
  });

  it('admits its burst at once after a pause', () => {
    const rate = { perS: 100, burst: 1_000 };
    expect(waitMs(fullBucket, 0, 1_000, rate)).to.equal(0);
    const drained = charge(fullBucket, 0, 1_000, rate);
    expect(waitMs(drained, 0, 1, rate)).to.be.closeTo(10, 0.01);
    expect(waitMs(drained, 10_000, 1_000, rate)).to.equal(0);
  });

  it('of 0 is no limit', () => {
    expect(rateOf(0, 10)).to.equal(undefined);
  });
});

import { expect } from 'chai';
import fc from 'fast-check';
import { backoffMs, type RetryFacts, retryAfterMs } from '../../../src/domain/jobs/backoff.ts';

const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const base = fc.integer({ min: 0, max: 600 });
const attempts = fc.integer({ min: 1, max: 1_000_000 });

describe('the backoff between attempts', () => {
  it('starts at the base, and doubles with every attempt up to ten minutes', () => {
    const waits = [1, 2, 3, 4, 9, 10, 1_000].map((attempt) => backoffMs(2, attempt, 0));
    expect(waits).to.deep.equal([2_000, 4_000, 8_000, 16_000, 512_000, 600_000, 600_000]);
  });

  it('shortens a backoff by up to a quarter, so that failed jobs do not return together', () => {
    expect([0, 0.5, 1].map((one) => backoffMs(2, 1, one))).to.deep.equal([2_000, 1_750, 1_500]);
    expect(backoffMs(600, 20, 1)).to.equal(450_000);
  });

  it('returns no backoff for a base of 0', () => {
    fc.assert(fc.property(attempts, random, (n, one) => backoffMs(0, n, one) === 0));
  });

  it('keeps a backoff within its bounds for every base and number of attempts', () => {
    fc.assert(
      fc.property(base, attempts, random, (baseS, n, one) => {
        const waitMs = backoffMs(baseS, n, one);
        expect(Number.isInteger(waitMs)).to.equal(true);
        expect(waitMs).to.be.at.most(600_000);
        const longest = Math.min(baseS * 1000 * 2 ** Math.min(n - 1, 1_000), 600_000);
        expect(waitMs).to.be.within(Math.floor(longest * 0.75), longest);
      }),
    );
  });

  it('never shrinks from one attempt to the next for the same random number', () => {
    fc.assert(
      fc.property(base, attempts, random, (baseS, n, one) => {
        expect(backoffMs(baseS, n + 1, one)).to.be.at.least(backoffMs(baseS, n, one));
      }),
    );
  });
});

describe('the retry hint', () => {
  const calm: RetryFacts = { nextDueMs: null, missing: 1, perSecond: 0, asking: 1 };
  /** In the middle of the spread nothing is added or subtracted. */
  const hint = (more: Partial<RetryFacts>, one = 0.5) => retryAfterMs({ ...calm, ...more }, one);

  it('returns the time until the next lease, claim or backoff ends', () => {
    expect(hint({ nextDueMs: 1_700 })).to.equal(1_700);
    expect(hint({ nextDueMs: 12_345 })).to.equal(12_345);
  });

  it('returns a shorter hint if the missing units are freed faster than that', () => {
    expect(hint({ nextDueMs: 20_000, missing: 30, perSecond: 10 })).to.equal(3_000);
    expect(hint({ missing: 30, perSecond: 10 })).to.equal(3_000);
    expect(hint({ nextDueMs: 1_000, missing: 30, perSecond: 10 })).to.equal(1_000);
  });

  it('grows in proportion to the missing units', () => {
    expect(hint({ missing: 60, perSecond: 10 })).to.equal(2 * hint({ missing: 30, perSecond: 10 }));
  });

  it('returns two seconds if no fact is known', () => {
    expect(hint({})).to.equal(2_000);
  });

  it('returns at least 100 ms for a passed deadline, and at most 30 s', () => {
    expect(hint({ nextDueMs: 0 })).to.equal(100);
    expect(hint({ nextDueMs: 0 }, 0)).to.equal(100);
    expect(hint({ nextDueMs: 3_600_000 })).to.equal(25_000);
    expect(hint({ nextDueMs: 3_600_000 }, 1)).to.equal(30_000);
  });

  it('spreads hints by a fifth to either side, so that denied callers do not return together', () => {
    expect([0, 0.25, 0.75, 1].map((one) => hint({ nextDueMs: 10_000 }, one))).to.deep.equal([
      8_000, 9_000, 11_000, 12_000,
    ]);
  });

  it('spreads many callers over a longer time, in proportion to their number', () => {
    const alone = hint({ nextDueMs: 1_000 });
    expect(hint({ nextDueMs: 1_000, asking: 500 })).to.equal(alone);
    expect(hint({ nextDueMs: 1_000, asking: 2_000 })).to.equal(4 * alone);
  });

  it('keeps a hint within its bounds, whatever facts are known', () => {
    const prospects = fc.record({
      nextDueMs: fc.option(fc.double({ min: 0, max: 1e9, noNaN: true })),
      missing: fc.integer({ min: 1, max: 1_000_000_000 }),
      perSecond: fc.double({ min: 0, max: 1e6, noNaN: true }),
      asking: fc.double({ min: 0, max: 1e6, noNaN: true }),
    });
    fc.assert(
      fc.property(prospects, random, (known, one) => {
        const ms = retryAfterMs(known, one);
        expect(Number.isInteger(ms)).to.equal(true);
        expect(ms).to.be.within(100, 30_000);
      }),
    );
  });

  it('returns different hints for different random numbers, except at the bounds', () => {
    fc.assert(
      fc.property(fc.integer({ min: 500, max: 20_000 }), (nextDueMs) => {
        expect(hint({ nextDueMs }, 0.1)).to.be.below(hint({ nextDueMs }, 0.9));
      }),
    );
  });
});

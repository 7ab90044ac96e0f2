import { expect } from 'chai';
import { estimate, medianInterval, verdictOf } from './statistics.ts';

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

/** The probability that the median lies between the k-th value from either end, added up anew. */
function coverage(count: number, rank: number): number {
  const choose = (k: number): number => (k === 0 ? 1 : (choose(k - 1) * (count - k + 1)) / k);
  const tail = upTo(rank).reduce((sum, k) => sum + choose(k - 1), 0) / 2 ** count;
  return 1 - 2 * tail;
}

describe('the interval of a median', () => {
  it('takes the second and the tenth of eleven values, in any order', () => {
    expect(medianInterval([11, 3, 9, 1, 5, 7, 2, 10, 4, 8, 6])).to.deep.equal({ low: 2, high: 10 });
  });

  it('does not exist for fewer than six values, and is their whole spread for six', () => {
    for (let count = 0; count < 6; count++)
      expect(medianInterval(upTo(count)), `${count}`).to.equal(undefined);
    expect(medianInterval(upTo(6))).to.deep.equal({ low: 1, high: 6 });
  });

  it('is the narrowest between order statistics that covers 95 %, for 6 to 60 values', () => {
    for (let count = 6; count <= 60; count++) {
      const { low = 0, high = 0 } = medianInterval(upTo(count)) ?? {};
      expect(low + high, `${count}`).to.equal(count + 1);
      expect(coverage(count, low), `${count}`).to.be.at.least(0.95);
      expect(coverage(count, low + 1), `${count}`).to.be.below(0.95);
    }
  });

  it('exists for as many pairs as can be asked for', () => {
    const { low = 0, high = 0 } = medianInterval(upTo(999)) ?? {};
    expect([low, high]).to.deep.equal([469, 531]);
  });

  it('is not moved by one value that is far off', () => {
    const values = [...upTo(10), 1_000];
    expect(medianInterval(values)).to.deep.equal({ low: 2, high: 10 });
    expect(estimate(values)).to.deep.include({ values, median: 6 });
  });
});

describe('the verdict on a ratio of rates', () => {
  const verdict = (low: number, median: number, high: number, bound = 0.97) =>
    verdictOf({ median, interval: { low, high } }, bound);

  it('says below only where the whole interval is below the bound', () => {
    expect(verdict(0.9, 0.95, 0.969)).to.equal('below');
    expect(verdict(0.5, 0.7, 0.969)).to.equal('below');
    expect(verdict(0.95, 0.96, 0.97)).to.equal('holds');
  });

  it('says holds where the whole interval is above the bound, however wide it is', () => {
    expect(verdict(0.98, 1, 1.02)).to.equal('holds');
    expect(verdict(0.98, 1.2, 1.6)).to.equal('holds');
  });

  it('says holds where an interval within 3 % to either side contains the bound', () => {
    expect(verdict(0.96, 0.98, 1)).to.equal('holds');
  });

  it('says undecided where an interval wider than 3 % to either side contains the bound', () => {
    expect(verdict(0.9, 0.98, 1.05)).to.equal('undecided');
    expect(verdict(0.97, 1, 1.05)).to.equal('undecided');
  });

  it('measures the width by the median', () => {
    expect(verdict(1.9, 2, 2.01, 2)).to.equal('holds');
    expect(verdict(0.45, 0.5, 0.51, 0.5)).to.equal('undecided');
  });

  it('says undecided where there are too few pairs for an interval', () => {
    expect(verdictOf(estimate([2, 2, 2, 2, 2]), 0.97)).to.equal('undecided');
    expect(verdictOf(estimate([0.1, 0.1, 0.1, 0.1, 0.1]), 0.97)).to.equal('undecided');
  });
});

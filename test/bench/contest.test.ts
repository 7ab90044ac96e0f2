import { expect } from 'chai';
import { type Contender, fastestPeer, ratio, ratios, type Side } from './contest.ts';

const one = (name: string, side: Side, ...rates: number[]): Contender => ({ name, side, rates });
const contest = (...contenders: Contender[]) => ({ name: 'drain', unit: 'jobs/s', contenders });

describe('a contest', () => {
  it('compares round by round, so that a slow hour is slow for both', () => {
    const { values } = ratio(one('ours', 'ours', 100, 50, 200), one('theirs', 'peer', 50, 25, 100));
    expect(values).to.deep.equal([2, 2, 2]);
  });

  it('leaves out rounds that the other has not played', () => {
    const { values } = ratio(one('ours', 'ours', 100, 50), one('theirs', 'peer', 50));
    expect(values).to.deep.equal([2]);
  });

  it('holds each of ours against everybody else, and against none of ours', () => {
    const found = ratios(
      contest(
        one('stream', 'ours', 40),
        one('unary', 'ours', 10),
        one('floor', 'floor', 80),
        one('a', 'peer', 20),
      ),
    );
    expect(found.map(({ ours, to, side, values }) => [ours, to, side, ...values])).to.deep.equal([
      ['stream', 'floor', 'floor', 0.5],
      ['stream', 'a', 'peer', 2],
      ['unary', 'floor', 'floor', 0.125],
      ['unary', 'a', 'peer', 0.5],
    ]);
  });

  it('takes for the fastest peer the one with the best median, not the best round, and never the floor', () => {
    const steady = one('steady', 'peer', 30, 31, 32);
    const found = fastestPeer(
      contest(one('ours', 'ours', 99), one('floor', 'floor', 90), one('lucky', 'peer', 10, 11, 80), steady),
    );
    expect(found).to.equal(steady);
  });

  it('has no fastest peer where there is none', () => {
    expect(fastestPeer(contest(one('ours', 'ours', 1), one('floor', 'floor', 2)))).to.equal(undefined);
  });
});

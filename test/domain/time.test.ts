import { expect } from 'chai';
import { span } from '../../src/domain/time.ts';

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

describe('the text of a time span', () => {
  it('prints a time span in at most two units, and never below zero', () => {
    const told = [
      [-5, '0 ms'],
      [999, '999 ms'],
      [1_000, '1 s'],
      [1_549, '1.5 s'],
      [45 * second, '45 s'],
      [9_960, '10 s'],
      [59_600, '1 min'],
      [200 * second, '3 min 20 s'],
      [5 * minute, '5 min'],
      [179 * minute, '2 h 59 min'],
      [3 * hour, '3 h'],
      [24 * hour - second, '1 d'],
      [75 * hour, '3 d 3 h'],
    ] as const;
    for (const [ms, words] of told) expect(span(ms)).to.equal(words);
  });
});

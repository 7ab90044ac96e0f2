import { expect } from 'chai';
import { span } from '../../src/domain/time.ts';

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

describe('the text of a time span', () => {
  it('prints a time span as a person would say it, and never below zero', () => {
    const told = [
      [-5, '0 ms'],
      [999, '999 ms'],
      [1_000, '1 s'],
      [1_549, '1.5 s'],
      [45 * second, '45 s'],
      [299 * second, '299 s'],
      [5 * minute, '5 min'],
      [179 * minute, '179 min'],
      [3 * hour, '3 h'],
      [71 * hour, '71 h'],
      [72 * hour, '3 d'],
    ] as const;
    for (const [ms, words] of told) expect(span(ms)).to.equal(words);
  });
});

import { expect } from 'chai';
import fc from 'fast-check';
import { covers, everything, matches, nothing, reachesJob } from '../../../src/domain/access/scopes.ts';

const name = fc.string({ unit: fc.constantFrom('a', 'b', '-'), minLength: 1, maxLength: 4 });
const pattern = fc.oneof(
  name,
  name.map((text) => `${text}*`),
  fc.constant('*'),
);
const patterns = fc.array(pattern, { maxLength: 4 });

describe('scopes', () => {
  it('match exact names, prefixes and everything', () => {
    expect(matches(['gpu-*', 'cpu'], 'gpu-7')).to.equal(true);
    expect(matches(['gpu-*', 'cpu'], 'cpu')).to.equal(true);
    expect(matches(['gpu-*', 'cpu'], 'cpu-1')).to.equal(false);
    expect(matches(['gpu-*'], 'gpu')).to.equal(false);
    expect(matches(['*'], '')).to.equal(true);
    expect(matches([], 'a')).to.equal(false);
  });

  it('cover other scopes only if no name is matched by those alone', () => {
    fc.assert(
      fc.property(patterns, patterns, name, (outer, inner, text) => {
        if (covers(outer, inner) && matches(inner, text)) expect(matches(outer, text)).to.equal(true);
      }),
      { numRuns: 2_000 },
    );
  });

  it('reach a job by its addon, its type and its stream, if it has one', () => {
    const job = { addonId: 'shop', jobType: 'render', stream: null };
    expect(reachesJob(everything, job)).to.equal(true);
    expect(reachesJob(nothing, job)).to.equal(false);
    const scopes = { ...nothing, addon_ids: ['shop'], job_types: ['*'] };
    expect(reachesJob(scopes, job)).to.equal(true);
    expect(reachesJob(scopes, { ...job, stream: 's' })).to.equal(false);
    expect(reachesJob(scopes, { ...job, addonId: 'other' })).to.equal(false);
  });
});

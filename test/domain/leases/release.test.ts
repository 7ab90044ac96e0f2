import { expect } from 'chai';
import { type ReleaseRules, releaseOf } from '../../../src/domain/leases/release.ts';
import { limits } from '../../../src/domain/limits.ts';
import type { ReleaseLease } from '../../../src/domain/requests/scheduler.ts';

describe('releaseOf', () => {
  const least: ReleaseLease = { worker_id: 'w', status: 'FAILED' };
  const nothing = {
    leaseId: 'l',
    workerId: 'w',
    holder: null,
    token: null,
    jobId: null,
    status: 'FAILED',
    resultData: null,
    error: null,
    errorDetail: null,
    retryable: false,
    metrics: null,
    message: null,
    bytes: 0,
  };

  it('treats absent fields and null alike in a release', () => {
    const nulls = { lease_token: null, job_id: null, result_data: null, error: null, metrics: null };
    for (const command of [least, { ...least, ...nulls }])
      expect(releaseOf('l', command, { mayRetry: true })).to.deep.equal(nothing);
  });

  it('stores an error as text, and as the object that the worker sent', () => {
    const errors: [ReleaseLease['error'], string | null][] = [
      ['text', 'text'],
      ['', ''],
      [{ message: 'm', code: 'c' }, 'm'],
      [{ code: 'c', stack: 'at x' }, 'c'],
      [{ message: '', code: 'c' }, 'c'],
      [{ stack: 'at x' }, null],
      [{}, null],
    ];
    for (const [error, words] of errors) {
      const errorDetail = typeof error === 'object' ? error : null;
      const { bytes, ...release } = releaseOf('l', { ...least, error }, { mayRetry: true });
      const { bytes: _none, ...rest } = nothing;
      expect(release).to.deep.equal({ ...rest, error: words, errorDetail });
      const parts = [words, errorDetail].filter((part) => part !== null);
      expect(bytes).to.equal(parts.reduce((sum: number, part) => sum + JSON.stringify(part).length, 0));
    }
  });

  it('marks a failure as retryable if worker and contract allow it', () => {
    const retryable = (flag: boolean | null, rules: ReleaseRules) =>
      releaseOf('l', { ...least, error: { retryable: flag } }, rules).retryable;
    expect(retryable(true, { mayRetry: true })).to.equal(true);
    expect(retryable(true, { mayRetry: false })).to.equal(false);
    for (const flag of [false, null]) expect(retryable(flag, { mayRetry: true })).to.equal(false);
  });

  it('marks a failure as retryable by default if the contract does so (D4)', () => {
    const retryable = (error: ReleaseLease['error'], mayRetry = true) =>
      releaseOf('l', { ...least, error }, { mayRetry, retryableByDefault: true }).retryable;
    for (const error of [null, 'text', {}, { retryable: null }, { retryable: true }]) {
      expect(retryable(error)).to.equal(true);
      expect(retryable(error, false)).to.equal(false);
    }
    expect(retryable({ retryable: false })).to.equal(false);
  });

  it('limits a release to 1 MiB in all, and names the largest part of a larger one', () => {
    const text = (bytes: number) => 'x'.repeat(bytes - '""'.length);
    const half = text(limits.jobBytes / 2);
    expect(releaseOf('l', { ...least, result_data: half, error: half }, { mayRetry: true }).error).to.equal(
      half,
    );
    const large = text(limits.jobBytes);
    const refused: [string, Partial<ReleaseLease>][] = [
      ['result_data', { result_data: large, error: 'e' }],
      ['error', { result_data: 1, error: large }],
      ['error', { error: { stack: large } }],
      ['metrics', { metrics: { large } }],
    ];
    for (const [field, fields] of refused) {
      expect(() => releaseOf('l', { ...least, ...fields }, { mayRetry: true }))
        .to.throw('payload_too_large')
        .that.includes({ field, code: 'payload_too_large' });
    }
  });
});

import { expect } from 'chai';
import { anonymous, type Principal } from '../../../../src/domain/access/principal.ts';
import { DomainError } from '../../../../src/domain/errors.ts';
import { FailedAttempts } from '../../../../src/engine/access/limits/failed-attempts.ts';
import { adminPerS, RateLimiter } from '../../../../src/engine/access/limits/rate-limiter.ts';
import { StreamCounts } from '../../../../src/engine/access/limits/stream-counts.ts';

const principal = (holder: string, id = holder): Principal => ({ ...anonymous, id, holder });

const errorOf = (work: () => void): DomainError | undefined => {
  try {
    work();
    return undefined;
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
};

describe('the rate limiter', () => {
  let now: number;
  let limiter: RateLimiter;
  beforeEach(() => {
    now = 0;
    limiter = new RateLimiter({ rateSubmit: 10, rateRead: 5, rateBurstS: 2 }, () => now);
  });

  const take = (who: Principal, bucket: 'submit' | 'read' | 'admin', items = 1) =>
    errorOf(() => limiter.take(who, bucket, items));

  it('refuses a call beyond the burst, and admits it after the time that it tells', () => {
    const a = principal('a');
    expect(take(a, 'submit', 20)).to.equal(undefined);
    const refused = take(a, 'submit', 5);
    expect(refused?.code).to.equal('rate_limited');
    expect(refused?.retryAfterMs).to.equal(500);
    now += 499;
    expect(take(a, 'submit', 5)?.retryAfterMs).to.equal(1);
    now += 1;
    expect(take(a, 'submit', 5)).to.equal(undefined);
  });

  it('counts items: a large batch delays the next call as much as single calls do', () => {
    const [a, b] = [principal('a'), principal('b')];
    expect(take(a, 'submit', 500)).to.equal(undefined);
    for (let i = 0; i < 20; i++) expect(take(b, 'submit'), String(i)).to.equal(undefined);
    expect(take(b, 'submit')?.retryAfterMs).to.equal(100);
    expect(take(a, 'submit')?.retryAfterMs).to.equal(48_100);
  });

  it('keeps the buckets of a credential apart, and those of credentials', () => {
    const [a, b] = [principal('a'), principal('b')];
    expect(take(a, 'submit', 20)).to.equal(undefined);
    expect(take(a, 'submit')?.code).to.equal('rate_limited');
    expect(take(a, 'read', 10)).to.equal(undefined);
    expect(take(a, 'admin', adminPerS)).to.equal(undefined);
    expect(take(b, 'submit', 20)).to.equal(undefined);
  });

  it('keeps the buckets of a key whose secret was rotated', () => {
    expect(take(principal('lineage', 'one'), 'read', 10)).to.equal(undefined);
    expect(take(principal('lineage', 'two'), 'read')?.code).to.equal('rate_limited');
  });

  it('takes nothing for a refused call, and counts later what an answer had', () => {
    const a = principal('a');
    limiter.add(a, 'read', 15);
    for (let i = 0; i < 5; i++) expect(take(a, 'read')?.retryAfterMs).to.equal(1_200);
    now += 1_200;
    expect(take(a, 'read')).to.equal(undefined);
  });

  it('of 0 limits nothing', () => {
    const unlimited = new RateLimiter({ rateSubmit: 0, rateRead: 0, rateBurstS: 1 }, () => now);
    for (let i = 0; i < 1_000; i++) unlimited.take(principal('a'), 'submit', 10_000);
  });
});

describe('failed attempts', () => {
  it('are refused for an address that fails too often, and only for that one', () => {
    let now = 0;
    const attempts = new FailedAttempts(2, 1, () => now);
    const codes = (peer: string, times: number) =>
      Array.from({ length: times }, () => attempts.count(peer)?.code);
    expect(codes('192.0.2.7:1', 3)).to.deep.equal([undefined, undefined, 'rate_limited']);
    expect(codes('192.0.2.7:2', 1)).to.deep.equal(['rate_limited']);
    expect(codes('192.0.2.8:1', 1)).to.deep.equal([undefined]);
    now += 500;
    expect(codes('192.0.2.7', 2)).to.deep.equal([undefined, 'rate_limited']);
  });

  it('take bounded memory', () => {
    const attempts = new FailedAttempts(1, 1, () => 0);
    for (let i = 0; i < 30_000; i++) attempts.count(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
    expect(attempts.addresses).to.equal(10_000);
    expect(attempts.count('10.0.117.47')?.code).to.equal('rate_limited');
    expect(attempts.count('10.0.0.1')).to.equal(undefined);
  });
});

describe('stream counts', () => {
  it('refuse a stream beyond the limit, until one of the credential is closed', () => {
    const counts = new StreamCounts(2);
    const [a, b] = [principal('a'), principal('b')];
    const close = counts.open(a);
    counts.open(a);
    const refused = errorOf(() => void counts.open(a));
    expect(refused?.code).to.equal('quota_exceeded');
    expect(refused?.quota).to.deep.equal({ name: 'max_streams', subject: 'credential:a', limit: 2, used: 2 });
    counts.open(b);
    close();
    close();
    expect(counts.of(a)).to.equal(1);
    counts.open(a);
    expect(errorOf(() => void counts.open(a))?.code).to.equal('quota_exceeded');
  });
});

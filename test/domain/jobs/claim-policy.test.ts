import { expect } from 'chai';
import type { Holder } from '../../../src/domain/access/holder.ts';
import { DomainError } from '../../../src/domain/errors.ts';
import {
  type ClaimedJob,
  decideCancel,
  decideDue,
  decideStatus,
  type Reporter,
} from '../../../src/domain/jobs/claim-policy.ts';
import { isClaimed, type State, states } from '../../../src/domain/jobs/state-machine.ts';

const job = (state: State, more: Partial<ClaimedJob> = {}): ClaimedJob => ({
  state,
  claimedBy: state === 'QUEUED' ? null : 'w1',
  holder: null,
  expiresAtMs: null,
  claimExpiresAtMs: isClaimed(state) ? 2_000 : null,
  claimsLost: 0,
  nowMs: 1_000,
  ...more,
});

const by = (workerId: string, holder: Holder = null): Reporter => ({ workerId, holder });

const verdict = (state: State, wanted: State): string => {
  try {
    const decision = decideStatus(job(state), wanted, { workerId: null, holder: null });
    return decision.kind === 'mark' ? 'mark' : decision.verb;
  } catch (error) {
    if (error instanceof DomainError) return error.code;
    throw error;
  }
};

describe('decideStatus', () => {
  it('moves a claimed job on or back, updates it in its present state, and refuses all else', () => {
    const told = states
      .filter((state) => !['DONE', 'FAILED', 'CANCELED', 'TIMEOUT'].includes(state))
      .flatMap((from) => states.map((to) => [from, to, verdict(from, to)]))
      .filter(([, , answer]) => answer !== 'illegal_transition');
    expect(told).to.deep.equal([
      ['QUEUED', 'QUEUED', 'mark'],
      ['CLAIMED', 'QUEUED', 'give back'],
      ['CLAIMED', 'CLAIMED', 'mark'],
      ['CLAIMED', 'PREPARING', 'prepare'],
      ['CLAIMED', 'LEASE_PENDING', 'await lease'],
      ['PREPARING', 'QUEUED', 'give back'],
      ['PREPARING', 'PREPARING', 'mark'],
      ['PREPARING', 'LEASE_PENDING', 'await lease'],
      ['LEASE_PENDING', 'QUEUED', 'give back'],
      ['LEASE_PENDING', 'LEASE_PENDING', 'mark'],
      ['LEASED', 'LEASED', 'mark'],
      ['LEASED', 'RUNNING', 'mark'],
      ['RUNNING', 'LEASED', 'mark'],
      ['RUNNING', 'RUNNING', 'mark'],
    ]);
  });

  it('accepts updates only from the claiming worker, if the caller names a worker', () => {
    expect(() => decideStatus(job('CLAIMED'), 'PREPARING', by('w2'))).to.throw('worker_mismatch');
    expect(decideStatus(job('CLAIMED'), 'PREPARING', by('w1')).kind).to.equal('move');
  });

  it('refuses updates of another credential under the same worker', () => {
    const held = job('CLAIMED', { holder: 7 });
    expect(() => decideStatus(held, 'PREPARING', by('w1', 8))).to.throw('worker_mismatch');
    expect(decideStatus(held, 'PREPARING', by('w1', 7)).kind).to.equal('move');
    expect(decideStatus(held, 'PREPARING', by('w1')).kind, 'without authentication').to.equal('move');
    expect(decideStatus(job('CLAIMED'), 'PREPARING', by('w1', 8)).kind, 'claimed without it').to.equal(
      'move',
    );
  });

  it('refuses updates after the claim expired, to the millisecond', () => {
    expect(decideStatus(job('CLAIMED', { nowMs: 1_999 }), 'PREPARING', by('w1')).kind).to.equal('move');
    expect(() => decideStatus(job('CLAIMED', { nowMs: 2_000 }), 'PREPARING', by('w1'))).to.throw(
      'job_not_claimed',
    );
  });

  it('refuses updates after the lease expired, to the millisecond', () => {
    for (const state of ['LEASED', 'RUNNING'] as const) {
      const at = (nowMs: number) => () =>
        decideStatus(job(state, { expiresAtMs: 2_000, nowMs }), 'RUNNING', by('w1')).kind;
      expect(at(1_999)()).to.equal('mark');
      expect(at(2_000)).to.throw('lease_not_active');
    }
  });
});

describe('decideCancel', () => {
  it('ends a job that does not run, and requests cancellation of a running one', () => {
    const kinds = states.slice(0, 6).map((state) => decideCancel(state).kind);
    expect(kinds).to.deep.equal(['end', 'end', 'end', 'end', 'ask worker', 'ask worker']);
  });
});

describe('decideDue', () => {
  it('makes a delayed job ready', () => {
    expect(decideDue(job('QUEUED'), 10)).to.deep.equal({ kind: 'make ready' });
  });

  it('requeues a job when its claim expires, and not before', () => {
    expect(decideDue(job('PREPARING', { nowMs: 1_999 }), 10)).to.deep.equal({ kind: 'nothing' });
    expect(decideDue(job('PREPARING', { nowMs: 2_000 }), 10)).to.deep.equal({
      kind: 'lose claim',
      claimsLost: 1,
    });
  });

  it('expires a lease on time and not before, to the millisecond', () => {
    for (const state of ['LEASED', 'RUNNING'] as const) {
      const leased = (nowMs: number) => decideDue(job(state, { expiresAtMs: 2_000, nowMs }), 10).kind;
      expect([1_000, 1_999, 2_000].map(leased), state).to.deep.equal(['nothing', 'nothing', 'expire']);
    }
  });

  it('fails a job whose claims expired too often in a row', () => {
    const late = { nowMs: 3_000 };
    expect(decideDue(job('CLAIMED', { ...late, claimsLost: 8 }), 10).kind).to.equal('lose claim');
    expect(decideDue(job('CLAIMED', { ...late, claimsLost: 9 }), 10)).to.deep.equal({
      kind: 'exhaust claims',
      claimsLost: 10,
    });
  });
});

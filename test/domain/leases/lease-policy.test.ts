import { expect } from 'chai';
import fc from 'fast-check';
import { DomainError } from '../../../src/domain/errors.ts';
import { type FinalStatus, finalStatuses } from '../../../src/domain/jobs/job.ts';
import { allows, isClaimed, isLeased, type State, states } from '../../../src/domain/jobs/state-machine.ts';
import { capacityOf } from '../../../src/domain/leases/capacity.ts';
import {
  type Assignment,
  assignJobs,
  type Candidate,
  checkOwner,
  checkProof,
  decideExpiry,
  decideRelease,
  decideRequest,
  denialIfFull,
  expired,
  type LeaseClaim,
  type LeasedJob,
  lostError,
  released,
} from '../../../src/domain/leases/lease-policy.ts';

const jobId = '00000000-0000-4000-8000-00000000000a';
const leaseId = '00000000-0000-4000-8000-00000000000b';
const token = '00000000-0000-4000-8000-00000000000c';

/** A job at second 1, with a claim or a lease until second 2. */
const job = (state: State, more: Partial<LeasedJob> = {}): LeasedJob => ({
  jobId,
  state,
  claimedBy: isClaimed(state) || isLeased(state) ? 'w1' : null,
  holder: null,
  claimExpiresAtMs: isClaimed(state) ? 2_000 : null,
  leaseToken: isLeased(state) ? token : null,
  expiresAtMs: isLeased(state) ? 2_000 : null,
  attempts: 1,
  attemptsLimit: 1,
  cancelRequested: false,
  requestId: null,
  claimsLost: 0,
  nowMs: 1_000,
  ...more,
});

const room = capacityOf({ total: 100, busyRating: 0, used: 0, reserved: 0 });

describe('checkOwner and checkProof', () => {
  const mine = { leaseId, workerId: 'w1', holder: null, token: null, jobId: null };
  const verdict = (more: Partial<LeasedJob>, proof: object) =>
    checkOwner(job('RUNNING', more), { ...mine, ...proof })?.code;

  it('accepts the worker of a lease, with or without the token and the job', () => {
    for (const proof of [{}, { token }, { jobId }, { token, jobId }]) {
      expect(verdict({}, proof)).to.equal(undefined);
    }
    expect(verdict({}, { token: token.toUpperCase(), jobId: jobId.toUpperCase() })).to.equal(undefined);
  });

  it('refuses another worker, another token and another job', () => {
    expect(verdict({}, { workerId: 'w2' })).to.equal('worker_mismatch');
    expect(verdict({}, { token: leaseId })).to.equal('token_mismatch');
    expect(verdict({}, { token: '' })).to.equal('token_mismatch');
    expect(verdict({}, { jobId: leaseId })).to.equal('job_mismatch');
  });

  it('answers another credential as if the lease did not exist, unless it has the token', () => {
    const held = { holder: 7 };
    expect(verdict(held, { holder: 7 })).to.equal(undefined);
    expect(verdict(held, { holder: 8 })).to.equal('lease_not_found');
    expect(verdict(held, { holder: 8, workerId: 'w2' })).to.equal('lease_not_found');
    expect(verdict(held, { holder: 8, token: leaseId })).to.equal('lease_not_found');
    expect(verdict(held, { holder: 8, token })).to.equal(undefined);
    expect(verdict(held, { holder: 8, token, workerId: 'w2' })).to.equal('worker_mismatch');
    expect(verdict(held, { holder: null }), 'without authentication').to.equal(undefined);
    expect(verdict({}, { holder: 8 }), 'granted without authentication').to.equal(undefined);
    expect(verdict({ ...held, nowMs: 9_000 }, { holder: 8 })).to.equal('lease_not_found');
  });

  it('refuses the worker of an expired lease, to the millisecond', () => {
    expect(verdict({ nowMs: 1_999 }, {})).to.equal(undefined);
    expect(verdict({ nowMs: 2_000 }, {})).to.equal('lease_not_active');
    expect(verdict({ expiresAtMs: null }, {})).to.equal('lease_not_active');
  });

  it('checks the owner before the time, so that another worker does not learn of the expiry', () => {
    expect(verdict({ nowMs: 9_000 }, { workerId: 'w2' })).to.equal('worker_mismatch');
    expect(verdict({ nowMs: 9_000 }, { token: leaseId })).to.equal('token_mismatch');
  });

  it('checks the owner of an ended lease by the same rules, without the time', () => {
    const over = { jobId, claimedBy: 'w1', holder: null, leaseToken: token };
    expect(checkProof(over, mine)).to.equal(undefined);
    expect(checkProof(over, { ...mine, workerId: 'w2' })?.code).to.equal('worker_mismatch');
  });

  it('refuses without naming the worker or the token of the lease', () => {
    const refused = checkOwner(job('RUNNING'), { ...mine, workerId: 'w2', token });
    expect(JSON.stringify(refused)).not.to.include('w1').and.not.to.include(token);
  });

  it('reports the time at which the lease expired or was released', () => {
    const at = Date.UTC(2030, 0, 2, 3, 4, 5, 678);
    expect(expired(leaseId, at).detail).to.equal(`lease ${leaseId} expired at 2030-01-02T03:04:05.678Z`);
    expect(released(leaseId, at).detail).to.equal(
      `lease ${leaseId} was released at 2030-01-02T03:04:05.678Z`,
    );
    expect(expired(leaseId, null).detail).to.equal(`lease ${leaseId} expired`);
    const error = lostError(released(leaseId, at));
    expect(error).to.be.instanceOf(DomainError);
    expect(error.code).to.equal('lease_not_active');
  });
});

describe('a request for the lease of a claimed job', () => {
  const ask: LeaseClaim = {
    workerId: null,
    holder: null,
    requestId: null,
    costUnits: 30,
    uniqueConflict: false,
  };
  const judged = (
    state: State,
    more: Partial<LeasedJob> = {},
    asked: Partial<LeaseClaim> = {},
    capacity = room,
  ) => {
    try {
      return decideRequest(job(state, more), { ...ask, ...asked }, capacity).kind;
    } catch (error) {
      if (error instanceof DomainError) return error.code;
      throw error;
    }
  };

  it('grants a lease in each state of a claimed job, and in no other', () => {
    const told = states.map((state) => [state, judged(state)]);
    expect(told.filter(([, answer]) => answer === 'grant').map(([state]) => state)).to.deep.equal([
      'CLAIMED',
      'PREPARING',
      'LEASE_PENDING',
    ]);
    for (const [, answer] of told) expect(answer).to.be.oneOf(['grant', 'job_not_claimed']);
  });

  it('refuses a worker other than the claiming one, if the request names a worker', () => {
    expect(judged('CLAIMED', {}, { workerId: 'w1' })).to.equal('grant');
    expect(judged('CLAIMED', {}, { workerId: 'w2' })).to.equal('worker_mismatch');
  });

  it('refuses a lease request after the claim expired, to the millisecond', () => {
    expect(judged('CLAIMED', { nowMs: 1_999 })).to.equal('grant');
    expect(judged('CLAIMED', { nowMs: 2_000 })).to.equal('job_not_claimed');
  });

  it('repeats the grant of the same request while the lease is active', () => {
    const held = { requestId: 'r' };
    for (const state of ['LEASED', 'RUNNING'] as const) {
      expect(judged(state, held, { requestId: 'r' })).to.equal('replay');
      expect(judged(state, held, { requestId: 'r', workerId: 'w1' })).to.equal('replay');
      expect(judged(state, held, { requestId: 'r', workerId: 'w2' })).to.equal('job_not_claimed');
      expect(judged(state, held, { requestId: 's' })).to.equal('job_not_claimed');
      expect(judged(state, held, { requestId: null })).to.equal('job_not_claimed');
      expect(judged(state, {}, { requestId: null })).to.equal('job_not_claimed');
      expect(judged(state, { ...held, nowMs: 2_000 }, { requestId: 'r' })).to.equal('job_not_claimed');
    }
  });

  it("grants up to the last unit, and denies one more in the contract's sentence", () => {
    const capacity = capacityOf({ total: 70, busyRating: 0, used: 60, reserved: 0 });
    expect(judged('CLAIMED', {}, { costUnits: 10 }, capacity)).to.equal('grant');
    expect(decideRequest(job('CLAIMED'), ask, capacity)).to.deep.equal({
      kind: 'deny',
      reason: 'Capacity exceeded: used=60, requested=30, capacity=70',
      missing: 20,
    });
  });

  it('denies a lease for a unique job whose worker holds a lease, whatever capacity is free', () => {
    const decision = decideRequest(job('CLAIMED'), { ...ask, uniqueConflict: true }, room);
    expect(decision).to.include({
      kind: 'deny',
      reason: 'The job is unique, and its worker holds a lease already',
    });
  });

  it('denies every lease while used units exceed the usable ones', () => {
    const lowered = capacityOf({ total: 10, busyRating: 0, used: 60, reserved: 0 });
    expect(decideRequest(job('CLAIMED'), { ...ask, costUnits: 1 }, lowered)).to.deep.equal({
      kind: 'deny',
      reason: 'Capacity exceeded: used=60, requested=1, capacity=10',
      missing: 51,
    });
  });
});

describe('denialIfFull', () => {
  const withUsed = (used: number) => capacityOf({ total: 10, busyRating: 2, used, reserved: 0 });

  it('denies without available units, and counts the missing ones', () => {
    const reason = (used: number) => `No capacity (busy=2, usable=8, leased=${used})`;
    expect(denialIfFull(withUsed(8))).to.deep.equal({ kind: 'deny', reason: reason(8), missing: 1 });
    expect(denialIfFull(withUsed(10))).to.deep.equal({ kind: 'deny', reason: reason(10), missing: 3 });
  });

  it('denies nothing while one unit is available', () => {
    expect(denialIfFull(withUsed(7))).to.equal(undefined);
  });
});

describe('assignJobs', () => {
  const named = (costs: readonly number[], unique: readonly number[] = []): Candidate[] =>
    costs.map((costUnits, i) => ({ jobId: `j${i}`, costUnits, isUnique: unique.includes(i) }));
  const told = (dealt: readonly Assignment[]) =>
    dealt.map((one) => (one === undefined ? 'nothing' : one.kind === 'grant' ? one.jobId : one.reason));
  const nobody: ReadonlySet<string> = new Set();

  it('assigns the first job to the first request, and so on', () => {
    expect(told(assignJobs(named([1, 1, 1]), ['a', 'b'], nobody, room))).to.deep.equal(['j0', 'j1']);
    expect(told(assignJobs(named([1]), ['a', 'b', 'c'], nobody, room))).to.deep.equal([
      'j0',
      'nothing',
      'nothing',
    ]);
  });

  it('lets no small job overtake one that does not fit, and denies as the contract says', () => {
    const capacity = capacityOf({ total: 70, busyRating: 0, used: 50, reserved: 0 });
    expect(assignJobs(named([10, 30, 1]), ['a', 'b', 'c'], nobody, capacity)).to.deep.equal([
      { kind: 'grant', jobId: 'j0' },
      { kind: 'deny', reason: 'Capacity exceeded: used=60, requested=30, capacity=70', missing: 20 },
      { kind: 'deny', reason: 'Capacity exceeded: used=60, requested=30, capacity=70', missing: 20 },
    ]);
  });

  it("denies in the contract's sentence if no unit is left", () => {
    const capacity = capacityOf({ total: 50, busyRating: 8, used: 0, reserved: 0 });
    expect(assignJobs(named([10, 1]), ['a', 'b'], nobody, capacity)).to.deep.equal([
      { kind: 'grant', jobId: 'j0' },
      { kind: 'deny', reason: 'No capacity (busy=8, usable=10, leased=10)', missing: 1 },
    ]);
    const short = capacityOf({ total: 10, busyRating: 0, used: 60, reserved: 0 });
    expect(assignJobs(named([1]), ['a'], nobody, short)).to.deep.equal([
      { kind: 'deny', reason: 'No capacity (busy=0, usable=10, leased=60)', missing: 51 },
    ]);
  });

  it('skips a unique job for a worker that holds a lease, and leaves it for the others', () => {
    const candidates = named([1, 1, 1], [0]);
    expect(told(assignJobs(candidates, ['holder', 'b'], new Set(['holder']), room))).to.deep.equal([
      'j1',
      'j0',
    ]);
  });

  it('counts a lease assigned in the same batch as held by its worker', () => {
    const candidates = named([1, 1, 1], [1, 2]);
    expect(told(assignJobs(candidates, ['a', 'a', 'b', 'b'], nobody, room))).to.deep.equal([
      'j0',
      'nothing',
      'j1',
      'nothing',
    ]);
  });

  it('checks the capacity by the next job that each worker may have, not by a skipped one', () => {
    const capacity = capacityOf({ total: 10, busyRating: 0, used: 0, reserved: 0 });
    const candidates = named([50, 3], [0]);
    expect(told(assignJobs(candidates, ['holder', 'b'], new Set(['holder']), capacity))).to.deep.equal([
      'j1',
      'Capacity exceeded: used=3, requested=50, capacity=10',
    ]);
  });

  const deals = fc.record({
    candidates: fc.array(fc.record({ costUnits: fc.integer({ min: 1, max: 60 }), isUnique: fc.boolean() }), {
      maxLength: 30,
    }),
    workers: fc.array(fc.constantFrom('a', 'b', 'c', 'd', 'e'), { maxLength: 30 }),
    holders: fc.uniqueArray(fc.constantFrom('a', 'b', 'c')),
    total: fc.integer({ min: 0, max: 200 }),
    busyRating: fc.integer({ min: 0, max: 10 }),
    used: fc.integer({ min: 0, max: 250 }),
  });

  it('assigns no unit and no job twice, keeps the order, and keeps unique jobs from holders', () => {
    fc.assert(
      fc.property(deals, ({ candidates, workers, holders, total, busyRating, used }) => {
        const jobs = candidates.map((one, i) => ({ ...one, jobId: `j${i}` }));
        const capacity = capacityOf({ total, busyRating, used, reserved: 0 });
        const dealt = assignJobs(jobs, workers, new Set(holders), capacity);
        expect(dealt).to.have.length(workers.length);
        let taken = used;
        const holding = new Set<string>(holders);
        const given = new Set<string>();
        for (const [i, workerId] of workers.entries()) {
          const open = jobs.filter((one) => !given.has(one.jobId));
          const next = open.find(({ isUnique }) => !isUnique || !holding.has(workerId));
          const one = dealt[i];
          if (one?.kind === 'grant') {
            expect(one.jobId, 'the next that the worker may have').to.equal(next?.jobId);
            given.add(one.jobId);
            holding.add(workerId);
            taken += next?.costUnits ?? 0;
            expect(taken).to.be.at.most(capacity.usable);
          } else if (one === undefined) {
            expect(next).to.equal(undefined);
          } else {
            const room = capacity.usable - taken;
            expect(room <= 0 || (next?.costUnits ?? 0) > room, one.reason).to.equal(true);
            expect(one.missing).to.equal(room <= 0 ? 1 - room : (next?.costUnits ?? 0) - room);
          }
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe('the outcome of a released lease', () => {
  const verb = (status: FinalStatus, retryable: boolean, more: Partial<LeasedJob> = {}) =>
    decideRelease(job('RUNNING', more), status, retryable).verb;
  const more = { attempts: 1, attemptsLimit: 2 };

  it('ends a job as its worker reports', () => {
    const verbs = finalStatuses.map((status) => verb(status, false, more));
    expect(verbs).to.deep.equal(['complete', 'fail', 'stop', 'time out']);
  });

  it('requeues a job after a failure that may be retried, if attempts are left', () => {
    expect(verb('FAILED', true, more)).to.equal('requeue');
    expect(verb('FAILED', true, { attempts: 2, attemptsLimit: 2 })).to.equal('fail');
    expect(verb('FAILED', true, { attempts: 3, attemptsLimit: 2 })).to.equal('fail');
    for (const status of ['SUCCEEDED', 'CANCELED', 'TIMEOUT'] as const) {
      expect(verb(status, true, more)).not.to.equal('requeue');
    }
  });

  it('cancels a released job if a client asked for that, whatever the worker reports', () => {
    for (const status of finalStatuses) {
      expect(verb(status, true, { ...more, cancelRequested: true })).to.equal('stop');
    }
  });
});

describe('the outcome of an expired lease', () => {
  it('requeues an expired job if attempts are left, and ends it as TIMEOUT otherwise', () => {
    const verbs = [1, 2, 3].map((attempts) =>
      decideExpiry(job('RUNNING', { attempts, attemptsLimit: 2 }), 10),
    );
    expect(verbs.map(({ verb }) => verb)).to.deep.equal(['requeue', 'time out', 'time out']);
  });

  it('cancels an expired job if a client asked for that', () => {
    const wanted = job('LEASED', { attempts: 1, attemptsLimit: 9, cancelRequested: true });
    expect(decideExpiry(wanted, 10).verb).to.equal('stop');
  });

  it('counts no attempt for an unconfirmed lease, unless that happened too often in a row', () => {
    const lost = (claimsLost: number, more: Partial<LeasedJob> = {}) =>
      decideExpiry(job('LEASED', { claimExpiresAtMs: 2_000, claimsLost, ...more }), 3);
    expect(lost(0)).to.deep.equal({ verb: 'requeue', isUndone: true });
    expect(lost(1)).to.deep.equal({ verb: 'requeue', isUndone: true });
    expect(lost(2)).to.deep.equal({ verb: 'time out' });
    expect(lost(2, { attemptsLimit: 2 })).to.deep.equal({ verb: 'requeue' });
    expect(lost(0, { cancelRequested: true })).to.deep.equal({ verb: 'stop' });
    expect(decideExpiry(job('RUNNING', { attemptsLimit: 2 }), 3)).to.deep.equal({ verb: 'requeue' });
  });

  it('produces only outcomes that the state machine allows', () => {
    const anyJob = fc.record({
      attempts: fc.integer({ min: 1, max: 5 }),
      attemptsLimit: fc.integer({ min: 1, max: 5 }),
      cancelRequested: fc.boolean(),
      claimExpiresAtMs: fc.constantFrom(null, 2_000),
      claimsLost: fc.integer({ min: 0, max: 5 }),
    });
    fc.assert(
      fc.property(anyJob, fc.constantFrom(...finalStatuses), fc.boolean(), (one, status, retryable) => {
        // A released lease passes through RUNNING; an expired one may end in its present state.
        expect(allows(decideRelease(job('RUNNING', one), status, retryable).verb, 'RUNNING')).to.equal(true);
        for (const state of ['LEASED', 'RUNNING'] as const) {
          expect(allows(decideExpiry(job(state, one), 3).verb, state)).to.equal(true);
        }
      }),
    );
  });
});

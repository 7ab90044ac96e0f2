import { DomainError } from '../errors.ts';
import { allows, isClaimed, isLeased, type State, type Verb } from './state-machine.ts';

/**
 * What may be done to a job that somebody has claimed, decided from its locked row and the database's time. Every
 * function answers with a decision; carrying it out is the engine's part.
 */
export interface ClaimedJob {
  state: State;
  claimedBy: string | null;
  claimExpiresAtMs: number | null;
  expiresAtMs: number | null;
  claimsLost: number;
  nowMs: number;
}

/** Leave the state as it is and note what was said, or move it on. */
export type StatusDecision = { kind: 'mark' } | { kind: 'move'; verb: Verb };

const verbTo: Partial<Record<State, Verb>> = {
  PREPARING: 'prepare',
  LEASE_PENDING: 'await lease',
  QUEUED: 'give back',
};

/** Judges a worker's word on the state of its job. `workerId` is null where the worker did not say who it is. */
export function decideStatus(job: ClaimedJob, wanted: State, workerId: string | null): StatusDecision {
  if (workerId !== null && job.claimedBy !== null && job.claimedBy !== workerId) {
    throw new DomainError('worker_mismatch', `the job is with worker ${job.claimedBy}`, {
      field: 'worker_id',
    });
  }
  if (isClaimed(job.state) && claimIsOver(job)) {
    throw new DomainError('job_not_claimed', `the claim ran out at ${isoTime(job.claimExpiresAtMs)}`);
  }
  if (isLeased(job.state) && leaseIsOver(job)) {
    throw new DomainError('lease_not_active', `the lease expired at ${isoTime(job.expiresAtMs)}`);
  }
  if (contractState(job.state) === contractState(wanted)) return { kind: 'mark' };
  const verb = verbTo[wanted];
  if (!verb || !allows(verb, job.state)) throw illegal(job.state, wanted);
  return { kind: 'move', verb };
}

export type CancelDecision = { kind: 'end' } | { kind: 'ask worker' };

export const decideCancel = (state: State): CancelDecision =>
  isLeased(state) ? { kind: 'ask worker' } : { kind: 'end' };

/** What to do with a row that the reaper finds due. */
export type DueDecision =
  | { kind: 'nothing' }
  | { kind: 'make ready' }
  | { kind: 'expire' }
  | { kind: 'lose claim'; claimsLost: number }
  | { kind: 'exhaust claims'; claimsLost: number };

/** A queued job's time has come, or a claim's or a lease's is over. A job that outlives too many claims must not go round for ever. */
export function decideDue(job: ClaimedJob, maxClaims: number): DueDecision {
  if (job.state === 'QUEUED') return { kind: 'make ready' };
  if (isLeased(job.state)) return leaseIsOver(job) ? { kind: 'expire' } : { kind: 'nothing' };
  if (!isClaimed(job.state) || !claimIsOver(job)) return { kind: 'nothing' };
  const claimsLost = job.claimsLost + 1;
  return { kind: claimsLost >= maxClaims ? 'exhaust claims' : 'lose claim', claimsLost };
}

/** The contracts know no LEASED; they say RUNNING from the grant on. */
export const contractState = (state: State): State => (state === 'LEASED' ? 'RUNNING' : state);

export const illegal = (from: State, to: State): DomainError =>
  new DomainError('illegal_transition', `a job that is ${from} cannot become ${to}`);

const claimIsOver = ({ claimExpiresAtMs, nowMs }: ClaimedJob): boolean =>
  claimExpiresAtMs !== null && claimExpiresAtMs <= nowMs;

const leaseIsOver = ({ expiresAtMs, nowMs }: ClaimedJob): boolean =>
  expiresAtMs !== null && expiresAtMs <= nowMs;

/** What its worker has of it is over, if that may be judged yet. */
export const isOverdue = (job: ClaimedJob): boolean =>
  isLeased(job.state) ? leaseIsOver(job) : isClaimed(job.state) && claimIsOver(job);

const isoTime = (ms: number | null): string => (ms === null ? 'an unknown time' : new Date(ms).toISOString());

import { type Holder, isHeldBy } from '../access/holder.ts';
import { DomainError } from '../errors.ts';
import { allows, isClaimed, isLeased, type State, type Verb } from './state-machine.ts';

/**
 * Policy for claimed jobs, decided from the job's locked row and the database's time. Every function returns
 * a decision; the engine carries it out.
 */
export interface ClaimedJob {
  state: State;
  claimedBy: string | null;
  /** The credential behind the worker. */
  holder: Holder;
  claimExpiresAtMs: number | null;
  expiresAtMs: number | null;
  claimsLost: number;
  nowMs: number;
}

/** Keep the state and record the report, or change the state. */
export type StatusDecision = { kind: 'mark' } | { kind: 'move'; verb: Verb };

const verbTo: Partial<Record<State, Verb>> = {
  PREPARING: 'prepare',
  LEASE_PENDING: 'await lease',
  QUEUED: 'give back',
};

/** Who reports the state of a job. `workerId` is null where the report names no worker. */
export interface Reporter {
  workerId: string | null;
  holder: Holder;
}

/** Decides about a worker's report of its job's state. */
export function decideStatus(job: ClaimedJob, wanted: State, { workerId, holder }: Reporter): StatusDecision {
  if (!isHeldBy(job.holder, holder)) {
    throw new DomainError('worker_mismatch', 'the job is with another worker', { field: 'worker_id' });
  }
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

/**
 * A queued job has become ready, or a claim or a lease has expired. A job that loses `maxClaims` claims
 * fails, so that it is not requeued for ever.
 */
export function decideDue(job: ClaimedJob, maxClaims: number): DueDecision {
  if (job.state === 'QUEUED') return { kind: 'make ready' };
  if (isLeased(job.state)) return leaseIsOver(job) ? { kind: 'expire' } : { kind: 'nothing' };
  if (!isClaimed(job.state) || !claimIsOver(job)) return { kind: 'nothing' };
  const claimsLost = job.claimsLost + 1;
  return { kind: claimsLost >= maxClaims ? 'exhaust claims' : 'lose claim', claimsLost };
}

/** The contracts have no LEASED; they show RUNNING from the grant on. */
export const contractState = (state: State): State => (state === 'LEASED' ? 'RUNNING' : state);

export const illegal = (from: State, to: State): DomainError =>
  new DomainError('illegal_transition', `a job that is ${from} cannot become ${to}`);

const claimIsOver = ({ claimExpiresAtMs, nowMs }: ClaimedJob): boolean =>
  claimExpiresAtMs !== null && claimExpiresAtMs <= nowMs;

const leaseIsOver = ({ expiresAtMs, nowMs }: ClaimedJob): boolean =>
  expiresAtMs !== null && expiresAtMs <= nowMs;

/** Whether the worker's claim or lease of the job has expired. */
export const isOverdue = (job: ClaimedJob): boolean =>
  isLeased(job.state) ? leaseIsOver(job) : isClaimed(job.state) && claimIsOver(job);

const isoTime = (ms: number | null): string => (ms === null ? 'an unknown time' : new Date(ms).toISOString());

import { DomainError, printable } from '../errors.ts';
import type { FinalStatus } from '../jobs/job.ts';
import { isClaimed, isLeased, type State, type Verb } from '../jobs/state-machine.ts';
import { enqueueIdOf } from '../streams/stream-message.ts';
import { capacityExceeded, noCapacity } from './capacity.ts';
import type { Capacity, Lost, NamedMessage } from './lease.ts';

/**
 * What may be done about a lease, decided from the job's locked row and the database's time. Every function answers
 * with a decision; carrying it out is the engine's part.
 */
export interface LeasedJob {
  jobId: string;
  state: State;
  claimedBy: string | null;
  claimExpiresAtMs: number | null;
  leaseToken: string | null;
  expiresAtMs: number | null;
  attempts: number;
  attemptsLimit: number;
  cancelRequested: boolean;
  requestId: string | null;
  /** How often in a row it was given out, and nobody took it up. */
  claimsLost: number;
  nowMs: number;
}

/** How somebody shows that a lease is theirs. What is null was not said. */
export interface Proof {
  workerId: string;
  token: string | null;
  jobId: string | null;
}

/** Nothing where the lease is theirs to keep or to end, or why it is not. */
export function checkOwner(job: LeasedJob, leaseId: string, proof: Proof): Lost | undefined {
  const stranger = checkProof(job, proof);
  if (stranger) return stranger;
  if (job.expiresAtMs === null || job.expiresAtMs <= job.nowMs) return expired(leaseId, job.expiresAtMs);
  return undefined;
}

/** The same question for a lease that may be over already. */
export function checkProof(
  { jobId, claimedBy, leaseToken }: Pick<LeasedJob, 'jobId' | 'claimedBy' | 'leaseToken'>,
  proof: Proof,
): Lost | undefined {
  if (claimedBy !== proof.workerId) return wrongWorker;
  if (proof.token !== null && proof.token.toLowerCase() !== leaseToken) return wrongToken;
  if (proof.jobId !== null && proof.jobId.toLowerCase() !== jobId) {
    return wrongJob(jobId);
  }
  return undefined;
}

const lost = (code: Lost['code'], detail: string): Lost => ({ kind: 'lost', code, detail });

/** Who else holds the lease is nobody's business who does not. */
export const wrongWorker = lost('worker_mismatch', 'the lease is with another worker');
export const wrongToken = lost('token_mismatch', "lease_token is not this lease's");

const atTime = (ms: number | null): string => (ms === null ? '' : ` at ${new Date(ms).toISOString()}`);

export const expired = (leaseId: string, atMs: number | null): Lost =>
  lost('lease_not_active', `lease ${leaseId} expired${atTime(atMs)}`);

export const released = (leaseId: string, atMs: number): Lost =>
  lost('lease_not_active', `lease ${leaseId} was released at ${new Date(atMs).toISOString()}`);

/** Nobody holds it, whoever asked. */
export const isOver = ({ code }: Lost): boolean => code === 'lease_not_active' || code === 'lease_not_found';

export const wrongJob = (jobId: string): Lost => lost('job_mismatch', `the lease is for job ${jobId}`);

/** What is known of the attempt's own message. */
export interface AttemptMessage {
  jobId: string;
  attempt: number;
  stream: string | null;
  /** All names that it has had in Redis. Nothing where an ended attempt did not keep them. */
  messageIds?: readonly string[] | null | undefined;
}

/**
 * Nothing where the message that a worker names is the attempt's, or why it is not: acknowledging it would lose another job.
 * Every name that the message has had is right, because a claim may have told any of them. Where names are not known,
 * `carrier` says whether Redis may have given one.
 */
export function checkMessage(
  { jobId, attempt, stream, messageIds }: AttemptMessage,
  named: NamedMessage | undefined,
  carrier: 'database' | 'redis',
): Lost | undefined {
  if (named === undefined) return undefined;
  if (named.stream !== null && named.stream !== stream) {
    return wrongMessage('stream', `the attempt is not of stream ${printable(named.stream)}`);
  }
  const { messageId } = named;
  if (messageId === null || messageId === enqueueIdOf({ jobId, attempt })) return undefined;
  const mayBeRedis = carrier === 'redis' && stream !== null && !messageId.includes(':');
  if (messageIds?.includes(messageId) ?? mayBeRedis) return undefined;
  return wrongMessage('message_id', `${printable(messageId)} is not the message of the attempt`);
}

const wrongMessage = (field: 'stream' | 'message_id', problem: string): Lost => ({
  ...lost('message_mismatch', `${field}: ${problem}`),
  field,
});

/** The same answer as an error, for those who asked about one lease. */
export const lostError = ({ code, detail, field = provedBy[code] }: Lost): DomainError => {
  return new DomainError(code, detail, field === undefined ? {} : { field });
};

/** What was sent, and is not the lease's. */
const provedBy: Partial<Record<Lost['code'], string>> = {
  worker_mismatch: 'worker_id',
  token_mismatch: 'lease_token',
  job_mismatch: 'job_id',
};

/** A claimed job's worker asks for its lease. */
export type RequestDecision =
  | { kind: 'replay' }
  | { kind: 'grant' }
  | { kind: 'deny'; reason: string; missing: number };

export interface LeaseClaim {
  workerId: string | null;
  requestId: string | null;
  costUnits: number;
  /** The job is not for a worker that holds a lease, and its worker does. */
  uniqueConflict: boolean;
}

export function decideRequest(job: LeasedJob, ask: LeaseClaim, capacity: Capacity): RequestDecision {
  if (isLeased(job.state)) {
    if (job.expiresAtMs === null || job.expiresAtMs <= job.nowMs) {
      throw new DomainError('job_not_claimed', `the job's lease expired${atTime(job.expiresAtMs)}`);
    }
    const same = ask.requestId !== null && ask.requestId === job.requestId;
    if (same && (ask.workerId === null || ask.workerId === job.claimedBy)) return { kind: 'replay' };
    throw new DomainError('job_not_claimed', 'the job has its lease already');
  }
  if (!isClaimed(job.state))
    throw new DomainError('job_not_claimed', `the job is ${job.state}; claim it first`);
  if (ask.workerId !== null && ask.workerId !== job.claimedBy) {
    throw new DomainError('worker_mismatch', 'the job is with another worker', { field: 'worker_id' });
  }
  if (job.claimExpiresAtMs !== null && job.claimExpiresAtMs <= job.nowMs) {
    const at = new Date(job.claimExpiresAtMs).toISOString();
    throw new DomainError('job_not_claimed', `the claim ran out at ${at}`);
  }
  if (ask.uniqueConflict) {
    return { kind: 'deny', reason: 'The job is unique, and its worker holds a lease already', missing: 1 };
  }
  if (ask.costUnits <= capacity.available) return { kind: 'grant' };
  return {
    kind: 'deny',
    reason: capacityExceeded(capacity, ask.costUnits),
    missing: ask.costUnits - capacity.available,
  };
}

/** A job at the head of the queue. */
export interface Candidate {
  jobId: string;
  costUnits: number;
  isUnique: boolean;
}

/** What each asker gets: a job; the reason why not; or undefined where the candidates ran out. */
export type Assignment =
  | { kind: 'grant'; jobId: string }
  | { kind: 'deny'; reason: string; missing: number }
  | undefined;

/**
 * Deals the jobs at the head of the queue to those who ask, both in their order. The next job is the one that is
 * judged: one that does not fit is not overtaken by smaller ones, for else it would wait for ever. A unique job is
 * passed over by a worker that holds a lease, and left for the others.
 */
export function assignJobs(
  candidates: readonly Candidate[],
  workers: readonly string[],
  holders: ReadonlySet<string>,
  capacity: Capacity,
): Assignment[] {
  const holding = new Set(holders);
  // Those that are gone are gone from the front, nearly always: what is taken out elsewhere leaves a gap.
  const left: (Candidate | undefined)[] = [...candidates];
  let first = 0;
  let { available } = capacity;
  const suits = (job: Candidate | undefined, workerId: string) =>
    job !== undefined && (!job.isUnique || !holding.has(workerId));
  return workers.map((workerId) => {
    if (available <= 0)
      return deny(noCapacity({ ...capacity, used: capacity.usable - available }), 1 - available);
    while (first < left.length && left[first] === undefined) first++;
    let next = first;
    while (next < left.length && !suits(left[next], workerId)) next++;
    const job = left[next];
    if (!job) return undefined;
    if (job.costUnits > available) {
      const used = capacity.usable - available;
      return deny(
        capacityExceeded({ usable: capacity.usable, used }, job.costUnits),
        job.costUnits - available,
      );
    }
    left[next] = undefined;
    available -= job.costUnits;
    holding.add(workerId);
    return { kind: 'grant', jobId: job.jobId };
  });
}

const deny = (reason: string, missing: number): Assignment => ({ kind: 'deny', reason, missing });

/** How a job goes on when its lease ends: to an end, or back into the queue. */
export interface LeaseEnd {
  verb: Extract<Verb, 'complete' | 'fail' | 'stop' | 'time out' | 'requeue'>;
  /** It was no attempt: its worker has never had the job. */
  isUndone?: boolean;
}

const verbOf: Record<FinalStatus, LeaseEnd['verb']> = {
  SUCCEEDED: 'complete',
  FAILED: 'fail',
  CANCELED: 'stop',
  TIMEOUT: 'time out',
};

/** A worker gives its lease back. Whatever it says, a job that somebody wanted canceled is. */
export function decideRelease(job: LeasedJob, status: FinalStatus, retryable: boolean): LeaseEnd {
  if (job.cancelRequested) return { verb: 'stop' };
  if (status === 'FAILED' && retryable && job.attempts < job.attemptsLimit) return { verb: 'requeue' };
  return { verb: verbOf[status] };
}

/** A leased job is marked like a claimed one from its grant on a stream until its worker is first heard. */
export const isUnconfirmed = ({ claimExpiresAtMs }: Pick<LeasedJob, 'claimExpiresAtMs'>): boolean =>
  claimExpiresAtMs !== null;

/**
 * Nobody has been heard of. A grant that did not reach its worker was no attempt; but a job that kills its workers before
 * they are heard must not go round for ever.
 */
export function decideExpiry(job: LeasedJob, maxClaims: number): LeaseEnd {
  if (job.cancelRequested) return { verb: 'stop' };
  if (isUnconfirmed(job) && job.claimsLost + 1 < maxClaims) return { verb: 'requeue', isUndone: true };
  return { verb: job.attempts < job.attemptsLimit ? 'requeue' : 'time out' };
}

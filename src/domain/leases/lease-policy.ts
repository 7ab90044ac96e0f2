import { type Holder, isHeldBy } from '../access/holder.ts';
import { DomainError, leaseNotFound, printable } from '../errors.ts';
import type { FinalStatus } from '../jobs/job.ts';
import { isClaimed, isLeased, type State, type Verb } from '../jobs/state-machine.ts';
import { enqueueIdOf } from '../streams/stream-message.ts';
import { capacityExceeded, noCapacity } from './capacity.ts';
import type { Capacity, Lost, NamedMessage } from './lease.ts';

/**
 * Policy for leases, decided from the job's locked row and the database's time. Every function returns a
 * decision; the engine carries it out.
 */
export interface LeasedJob {
  jobId: string;
  state: State;
  claimedBy: string | null;
  /** The credential behind the worker. */
  holder: Holder;
  claimExpiresAtMs: number | null;
  leaseToken: string | null;
  expiresAtMs: number | null;
  attempts: number;
  attemptsLimit: number;
  cancelRequested: boolean;
  requestId: string | null;
  /** Claims and unconfirmed grants in a row that expired. */
  claimsLost: number;
  nowMs: number;
}

/** A worker's proof that it holds a lease. A null field was not sent. */
export interface Proof {
  leaseId: string;
  workerId: string;
  holder: Holder;
  token: string | null;
  jobId: string | null;
}

/** Returns undefined if the worker may keep or end the lease, otherwise the reason why not. */
export function checkOwner(job: LeasedJob, proof: Proof): Lost | undefined {
  const stranger = checkProof(job, proof);
  if (stranger) return stranger;
  if (job.expiresAtMs === null || job.expiresAtMs <= job.nowMs)
    return expired(proof.leaseId, job.expiresAtMs);
  return undefined;
}

/**
 * The same check for a lease that may have ended already. Without the lease's token another credential learns
 * nothing: it gets the answer of a lease that does not exist.
 */
export function checkProof(
  { jobId, claimedBy, holder, leaseToken }: Pick<LeasedJob, 'jobId' | 'claimedBy' | 'holder' | 'leaseToken'>,
  proof: Proof,
): Lost | undefined {
  const hasToken = proof.token !== null && proof.token.toLowerCase() === leaseToken;
  if (!hasToken && !isHeldBy(holder, proof.holder)) return unknownLease(proof.leaseId);
  if (claimedBy !== proof.workerId) return wrongWorker;
  if (proof.token !== null && !hasToken) return wrongToken;
  if (proof.jobId !== null && proof.jobId.toLowerCase() !== jobId) {
    return wrongJob(jobId);
  }
  return undefined;
}

const lost = (code: Lost['code'], detail: string): Lost => ({ kind: 'lost', code, detail });

export const unknownLease = (leaseId: string): Lost => lost('lease_not_found', leaseNotFound(leaseId).detail);

/** The answer does not disclose which worker holds the lease. */
export const wrongWorker = lost('worker_mismatch', 'the lease is with another worker');
export const wrongToken = lost('token_mismatch', "lease_token is not this lease's");

const atTime = (ms: number | null): string => (ms === null ? '' : ` at ${new Date(ms).toISOString()}`);

export const expired = (leaseId: string, atMs: number | null): Lost =>
  lost('lease_not_active', `lease ${leaseId} expired${atTime(atMs)}`);

export const released = (leaseId: string, atMs: number): Lost =>
  lost('lease_not_active', `lease ${leaseId} was released at ${new Date(atMs).toISOString()}`);

/** Whether the lease has no holder at all, independent of the worker in the request. */
export const isOver = ({ code }: Lost): boolean => code === 'lease_not_active' || code === 'lease_not_found';

export const wrongJob = (jobId: string): Lost => lost('job_mismatch', `the lease is for job ${jobId}`);

/** What is known of the message of an attempt. */
export interface AttemptMessage {
  jobId: string;
  attempt: number;
  stream: string | null;
  /** All ids that the message has had in Redis. Absent where an ended attempt did not keep them. */
  messageIds?: readonly string[] | null | undefined;
}

/**
 * Returns undefined if the message that a worker names belongs to the attempt, otherwise the reason why not:
 * acknowledging another message would lose another job. Every id that the message has had is accepted,
 * because a claim may have returned any of them. Where the ids are not known, `carrier` says whether Redis
 * may have assigned one.
 */
export function checkMessage(
  { jobId, attempt, stream, messageIds }: AttemptMessage,
  named: NamedMessage | null,
  carrier: 'database' | 'redis',
): Lost | undefined {
  if (named === null) return undefined;
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

/** The same answer as an error, for a call about one lease. */
export const lostError = ({ code, detail, field = provedBy[code] }: Lost): DomainError => {
  return new DomainError(code, detail, field === undefined ? {} : { field });
};

/** The request field that does not match the lease. */
const provedBy: Partial<Record<Lost['code'], string>> = {
  worker_mismatch: 'worker_id',
  token_mismatch: 'lease_token',
  job_mismatch: 'job_id',
};

/** The decision about a lease request from the worker of a claimed job. */
export type RequestDecision =
  | { kind: 'replay' }
  | { kind: 'grant' }
  | { kind: 'deny'; reason: string; missing: number };

export interface LeaseClaim {
  workerId: string | null;
  holder: Holder;
  requestId: string | null;
  costUnits: number;
  /** The job is unique, and its worker already holds a lease. */
  uniqueConflict: boolean;
}

export function decideRequest(job: LeasedJob, ask: LeaseClaim, capacity: Capacity): RequestDecision {
  if (isLeased(job.state)) {
    if (job.expiresAtMs === null || job.expiresAtMs <= job.nowMs) {
      throw new DomainError('job_not_claimed', `the job's lease expired${atTime(job.expiresAtMs)}`);
    }
    const same =
      ask.requestId !== null && ask.requestId === job.requestId && isHeldBy(job.holder, ask.holder);
    if (same && (ask.workerId === null || ask.workerId === job.claimedBy)) return { kind: 'replay' };
    throw new DomainError('job_not_claimed', 'the job has its lease already');
  }
  if (!isClaimed(job.state))
    throw new DomainError('job_not_claimed', `the job is ${job.state}; claim it first`);
  const isWorker = ask.workerId === null || ask.workerId === job.claimedBy;
  if (!isWorker || !isHeldBy(job.holder, ask.holder)) {
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

interface Denial {
  kind: 'deny';
  reason: string;
  /** How many units are missing. */
  missing: number;
}

/** The answer to each requester: a job; a denial; or undefined where no candidate was left. */
export type Assignment = { kind: 'grant'; jobId: string } | Denial | undefined;

/** The denial of every request while no unit is available, whatever the queue holds; undefined otherwise. */
export const denialIfFull = (capacity: Capacity): Denial | undefined =>
  capacity.available > 0 ? undefined : deny(noCapacity(capacity), 1 - capacity.available);

/**
 * Assigns the jobs at the head of the queue to the requesting workers, both in their order. A job that does
 * not fit blocks the smaller jobs behind it, because it would otherwise wait for ever. A worker that holds a
 * lease skips unique jobs and leaves them for the other workers.
 */
export function assignJobs(
  candidates: readonly Candidate[],
  workers: readonly string[],
  holders: ReadonlySet<string>,
  capacity: Capacity,
): Assignment[] {
  const holding = new Set(holders);
  // Jobs are nearly always taken from the front; a job taken elsewhere leaves a gap.
  const left: (Candidate | undefined)[] = [...candidates];
  let first = 0;
  let { available } = capacity;
  const suits = (job: Candidate | undefined, workerId: string) =>
    job !== undefined && (!job.isUnique || !holding.has(workerId));
  return workers.map((workerId) => {
    if (available <= 0) return denialIfFull({ ...capacity, used: capacity.usable - available, available });
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

const deny = (reason: string, missing: number): Denial => ({ kind: 'deny', reason, missing });

/** The transition of a job when its lease ends: to a final state, or back into the queue. */
export interface LeaseEnd {
  verb: Extract<Verb, 'complete' | 'fail' | 'stop' | 'time out' | 'requeue'>;
  /** It does not count as an attempt, because the worker never received the job. */
  isUndone?: boolean;
}

const verbOf: Record<FinalStatus, LeaseEnd['verb']> = {
  SUCCEEDED: 'complete',
  FAILED: 'fail',
  CANCELED: 'stop',
  TIMEOUT: 'time out',
};

/**
 * A worker releases its lease. A job with a cancel request becomes CANCELED, whatever status the worker
 * reports.
 */
export function decideRelease(job: LeasedJob, status: FinalStatus, retryable: boolean): LeaseEnd {
  if (job.cancelRequested) return { verb: 'stop' };
  if (status === 'FAILED' && retryable && job.attempts < job.attemptsLimit) return { verb: 'requeue' };
  return { verb: verbOf[status] };
}

/** A grant on a stream leaves a claim expiry on the leased job until its worker confirms the grant. */
export const isUnconfirmed = ({ claimExpiresAtMs }: Pick<LeasedJob, 'claimExpiresAtMs'>): boolean =>
  claimExpiresAtMs !== null;

/**
 * No heartbeat has arrived in time. A grant that did not reach its worker does not count as an attempt. A job
 * that kills its workers before their first heartbeat still ends after `maxClaims`.
 */
export function decideExpiry(job: LeasedJob, maxClaims: number): LeaseEnd {
  if (job.cancelRequested) return { verb: 'stop' };
  if (isUnconfirmed(job) && job.claimsLost + 1 < maxClaims) return { verb: 'requeue', isUndone: true };
  return { verb: job.attempts < job.attemptsLimit ? 'requeue' : 'time out' };
}

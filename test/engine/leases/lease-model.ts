/**
 * Model of the state machine without a database: the answer and the effect of every command. Its clock moves
 * only with `pass`. Deadlines keep a distance from the model's time, so that the real seconds of a run do not
 * matter.
 */

import type { FinalStatus } from '../../../src/domain/jobs/job.ts';
import type { State } from '../../../src/domain/jobs/state-machine.ts';
import { capacityExceeded, noCapacity, noJobs, usableUnits } from '../../../src/domain/leases/capacity.ts';

export const ttlMs = 60_000;
export const claimMs = 100_000;
export const maxClaims = 2;
/** No deadline is closer than this to the model's time. */
export const marginMs = 15_000;

export interface JobModel {
  jobId: string;
  cost: number;
  /** Null for a job without a stream, which any request that names no stream may get. */
  stream: string | null;
  priority: number;
  unique: boolean;
  maxAttempts: number;
  maxRuntimeMs: number | null;
  backoffS: number;
  state: State;
  worker: string | null;
  attempts: number;
  attemptsLimit: number;
  claimsLost: number;
  claimUntil: number;
  /** When the job is ready: now, at a time, or when the total capacity is raised. */
  ready: 'now' | 'parked' | number;
  cancelRequested: boolean;
  /** The job is a dead letter of its stream. */
  dead: boolean;
  /** The current lease, or the last one. */
  lease: LeaseModel | null;
}

export interface LeaseModel {
  job: JobModel;
  leaseId: string;
  token: string;
  worker: string;
  requestId: string | null;
  fence: bigint;
  state: 'ACTIVE' | 'EXPIRED' | 'RELEASED';
  status: FinalStatus | null;
  ttlMs: number;
  until: number;
  endsAt: number;
  heartbeats: number;
  heardAt: number;
  /** The longest time from the grant or a heartbeat to the next heartbeat. */
  silenceMs: number;
}

/** The grant, the reason of the denial, or the error code of the refusal. */
export type Decision =
  | { kind: 'grant'; job: JobModel; replay: LeaseModel | null }
  | { kind: 'deny'; reason: string }
  | { kind: 'refuse'; code: string };

export interface Asked {
  worker: string | null;
  requestId: string | null;
}

const ended: readonly State[] = ['DONE', 'FAILED', 'CANCELED', 'TIMEOUT'];
const claimed: readonly State[] = ['CLAIMED', 'PREPARING', 'LEASE_PENDING'];
const refuse = (code: string): Decision => ({ kind: 'refuse', code });

export class Machine {
  now = 0;
  total = 20;
  busy = 0;
  fence = 0n;
  readonly jobs: JobModel[] = [];
  readonly leases: LeaseModel[] = [];

  get used(): number {
    return this.leases.reduce((sum, { state, job }) => (state === 'ACTIVE' ? sum + job.cost : sum), 0);
  }

  get usable(): number {
    return usableUnits(this.total, this.busy);
  }

  isEnded = ({ state }: JobModel): boolean => ended.includes(state);
  isClaimed = ({ state }: JobModel): boolean => claimed.includes(state);
  isLeased = ({ state }: JobModel): boolean => state === 'LEASED' || state === 'RUNNING';

  submit(
    job: Omit<
      JobModel,
      | 'state'
      | 'worker'
      | 'attempts'
      | 'attemptsLimit'
      | 'claimsLost'
      | 'claimUntil'
      | 'ready'
      | 'cancelRequested'
      | 'dead'
      | 'lease'
    >,
  ): void {
    this.jobs.push({
      ...job,
      state: 'QUEUED',
      worker: null,
      attempts: 0,
      attemptsLimit: job.maxAttempts,
      claimsLost: 0,
      claimUntil: 0,
      ready: 'now',
      cancelRequested: false,
      dead: false,
      lease: null,
    });
  }

  /** The queue in its order: by stream as requested, then by priority, then by submission. */
  line(streams: readonly (string | null)[] = [null]): JobModel[] {
    return this.jobs
      .filter(({ state, ready, stream }) => state === 'QUEUED' && ready === 'now' && streams.includes(stream))
      .sort((a, b) => streams.indexOf(a.stream) - streams.indexOf(b.stream) || a.priority - b.priority);
  }

  /** While the total capacity is zero, no job is parked. */
  claim(worker: string): JobModel | undefined {
    const holds = this.#holds(worker);
    let passUnique = false;
    for (;;) {
      const job = this.line().find(({ unique }) => !(passUnique && unique));
      if (job?.unique && holds) passUnique = true;
      else if (job && this.total > 0 && job.cost > this.total) this.#park(this.line(), null, false);
      else {
        if (job) Object.assign(job, { state: 'CLAIMED', worker, claimUntil: this.now + claimMs });
        return job;
      }
    }
  }

  /** The error code of the refusal, or 'ok'. */
  updateStatus(job: JobModel, wanted: State, worker: string | null): string {
    const word = job.state === 'LEASED' ? 'RUNNING' : job.state;
    if (this.isEnded(job)) return word === wanted ? 'ok' : 'illegal_transition';
    if (worker !== null && job.worker !== null && job.worker !== worker) return 'worker_mismatch';
    if (this.isClaimed(job) && job.claimUntil <= this.now) return 'job_not_claimed';
    if (this.isLeased(job) && (job.lease as LeaseModel).until <= this.now) return 'lease_not_active';
    if (word === wanted) return 'ok';
    const isStep =
      (wanted === 'PREPARING' && job.state === 'CLAIMED') ||
      (wanted === 'LEASE_PENDING' && (job.state === 'CLAIMED' || job.state === 'PREPARING')) ||
      (wanted === 'QUEUED' && this.isClaimed(job));
    if (!isStep) return 'illegal_transition';
    job.state = wanted;
    if (wanted === 'QUEUED') this.#unclaim(job, 'now');
    return 'ok';
  }

  request(job: JobModel, { worker, requestId }: Asked): Decision {
    const { lease } = job;
    if (this.isLeased(job) && lease) {
      const same = requestId !== null && requestId === lease.requestId;
      const isReplay = same && lease.until > this.now && (worker === null || worker === job.worker);
      return isReplay ? { kind: 'grant', job, replay: lease } : refuse('job_not_claimed');
    }
    if (!this.isClaimed(job)) return refuse('job_not_claimed');
    if (worker !== null && worker !== job.worker) return refuse('worker_mismatch');
    if (job.claimUntil <= this.now) return refuse('job_not_claimed');
    job.state = 'LEASE_PENDING';
    if (job.unique && this.#holds(job.worker)) {
      return { kind: 'deny', reason: 'The job is unique, and its worker holds a lease already' };
    }
    if (job.cost <= this.usable - this.used) return { kind: 'grant', job, replay: null };
    job.claimUntil = this.now + claimMs;
    return { kind: 'deny', reason: capacityExceeded(this, job.cost) };
  }

  acquire(
    { worker, requestId }: Asked,
    maxUnits: number | null,
    streams: readonly (string | null)[],
  ): Decision {
    const held = this.leases.find(
      (lease) =>
        lease.state === 'ACTIVE' &&
        lease.until > this.now &&
        lease.worker === worker &&
        requestId !== null &&
        lease.requestId === requestId,
    );
    if (held) return { kind: 'grant', job: held.job, replay: held };
    const { used, usable } = this;
    if (usable - used <= 0)
      return {
        kind: 'deny',
        reason: noCapacity({ total: 0, busyRating: this.busy, usable, used, available: 0 }),
      };
    const holds = this.#holds(worker);
    let passUnique = false;
    for (const job of this.line(streams)) {
      if ((maxUnits !== null && job.cost > maxUnits) || (passUnique && job.unique)) continue;
      if (job.ready === 'parked') continue;
      if (job.cost > this.total) this.#park(this.line(streams), maxUnits, passUnique);
      else if (job.unique && holds) passUnique = true;
      else if (job.cost > usable - used) return { kind: 'deny', reason: capacityExceeded(this, job.cost) };
      else return { kind: 'grant', job, replay: null };
    }
    return { kind: 'deny', reason: noJobs };
  }

  granted(
    job: JobModel,
    lease: Pick<LeaseModel, 'leaseId' | 'token' | 'worker' | 'requestId' | 'fence' | 'ttlMs'>,
    state: State,
  ): void {
    const endsAt = job.maxRuntimeMs === null ? Number.POSITIVE_INFINITY : this.now + job.maxRuntimeMs;
    const until = Math.min(this.now + lease.ttlMs, endsAt);
    const heard = { heartbeats: 0, heardAt: this.now, silenceMs: 0 };
    const model: LeaseModel = { ...lease, ...heard, job, state: 'ACTIVE', status: null, until, endsAt };
    this.leases.push(model);
    Object.assign(job, {
      state,
      worker: lease.worker,
      attempts: job.attempts + 1,
      claimsLost: 0,
      lease: model,
    });
    this.fence = lease.fence;
  }

  /** The verdict's error code, or 'extended'. */
  beat(lease: LeaseModel, worker: string, token: string | null): string {
    const lost = this.#refusal(lease, worker, token);
    if (lost) return lost;
    lease.until = Math.min(this.now + lease.ttlMs, lease.endsAt);
    lease.heartbeats++;
    lease.silenceMs = Math.max(lease.silenceMs, this.now - lease.heardAt);
    lease.heardAt = this.now;
    lease.job.state = 'RUNNING';
    return 'extended';
  }

  /** The error code of the refusal, 'ok', or 'again' for a repeated answer. */
  release(
    lease: LeaseModel,
    worker: string,
    token: string | null,
    status: FinalStatus,
    retryable: boolean,
  ): string {
    const lost = this.#refusal(lease, worker, token);
    const isSame = lease.state === 'RELEASED' && lease.status === status && token === lease.token;
    if (lost) return lost === 'lease_not_active' && isSame ? 'again' : lost;
    Object.assign(lease, { state: 'RELEASED', status });
    const { job } = lease;
    if (job.cancelRequested) this.#end(job, 'CANCELED');
    else if (status === 'FAILED' && retryable && job.attempts < job.attemptsLimit) this.#requeue(job);
    else this.#end(job, status === 'SUCCEEDED' ? 'DONE' : status);
    return 'ok';
  }

  cancel(job: JobModel): string {
    if (this.isEnded(job)) return job.state === 'CANCELED' ? 'ok' : 'illegal_transition';
    if (this.isLeased(job)) job.cancelRequested = true;
    else this.#end(job, 'CANCELED');
    return 'ok';
  }

  retry(job: JobModel): string {
    if (!this.isEnded(job) || job.state === 'DONE') return 'illegal_transition';
    const attemptsLimit = job.attempts + job.maxAttempts;
    Object.assign(job, {
      state: 'QUEUED',
      attemptsLimit,
      claimsLost: 0,
      cancelRequested: false,
      dead: false,
    });
    this.#unclaim(job, 'now');
    return 'ok';
  }

  setCapacity(total: number | null, busy: number | null): void {
    this.total = total ?? this.total;
    this.busy = busy ?? this.busy;
    for (const job of this.jobs) if (job.ready === 'parked' && job.cost <= this.total) job.ready = 'now';
  }

  /** Passes about `ms`, and a little longer where a deadline would be too close. */
  pass(ms: number): number {
    const deadlines = this.jobs.flatMap((job) => [
      ...(this.isClaimed(job) ? [job.claimUntil] : []),
      ...(typeof job.ready === 'number' ? [job.ready] : []),
      ...(this.isLeased(job) && job.lease ? [job.lease.until, job.lease.endsAt] : []),
    ]);
    let passed = ms;
    while (deadlines.some((at) => Math.abs(at - this.now - passed) < marginMs)) passed += marginMs / 3;
    this.now += passed;
    return passed;
  }

  reap(): void {
    for (const job of this.jobs) {
      const { lease } = job;
      if (job.state === 'QUEUED' && typeof job.ready === 'number' && job.ready <= this.now) job.ready = 'now';
      else if (this.isClaimed(job) && job.claimUntil <= this.now) {
        job.claimsLost++;
        if (job.claimsLost >= maxClaims) this.#end(job, 'FAILED');
        else this.#returnToQueue(job, 'now');
      } else if (this.isLeased(job) && lease && lease.until <= this.now) {
        lease.state = 'EXPIRED';
        if (job.cancelRequested) this.#end(job, 'CANCELED');
        else if (job.attempts < job.attemptsLimit) this.#requeue(job);
        else this.#end(job, 'TIMEOUT');
      }
    }
  }

  #holds(worker: string | null): boolean {
    return this.leases.some(
      (lease) => lease.state === 'ACTIVE' && lease.worker === worker && lease.until > this.now,
    );
  }

  /** When one job exceeds the total capacity, all such jobs that suit the request are parked. */
  #park(line: readonly JobModel[], maxUnits: number | null, passUnique: boolean): void {
    for (const job of line) {
      const suits = (maxUnits === null || job.cost <= maxUnits) && !(passUnique && job.unique);
      if (suits && job.cost > this.total) job.ready = 'parked';
    }
  }

  /** The worker is checked first: another worker learns nothing about the lease. */
  #refusal(lease: LeaseModel, worker: string, token: string | null): string | undefined {
    if (lease.worker !== worker) return 'worker_mismatch';
    if (token !== null && token !== lease.token) return 'token_mismatch';
    return lease.state === 'ACTIVE' && lease.until > this.now ? undefined : 'lease_not_active';
  }

  #end(job: JobModel, state: State): void {
    const dead = job.stream !== null && (state === 'FAILED' || state === 'TIMEOUT');
    Object.assign(job, { state, ready: 'now', dead });
  }

  /** The backoff is random, so the comparison reads it from the row afterwards. */
  #requeue(job: JobModel): void {
    this.#returnToQueue(job, job.backoffS === 0 ? 'now' : Number.NaN);
  }

  #returnToQueue(job: JobModel, ready: JobModel['ready']): void {
    job.state = 'QUEUED';
    this.#unclaim(job, ready);
  }

  #unclaim(job: JobModel, ready: JobModel['ready']): void {
    Object.assign(job, { worker: null, ready });
  }
}

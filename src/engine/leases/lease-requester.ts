import { randomUUID } from 'node:crypto';
import { type Holder, holderOf } from '../../domain/access/holder.ts';
import { DomainError, jobNotFound } from '../../domain/errors.ts';
import { isTerminal, transition } from '../../domain/jobs/state-machine.ts';
import { capacityOf } from '../../domain/leases/capacity.ts';
import type { Capacity, Grant, LeaseOutcome } from '../../domain/leases/lease.ts';
import { decideRequest } from '../../domain/leases/lease-policy.ts';
import type { RequestLease } from '../../domain/requests/scheduler.ts';
import { LockAwareBatcher, type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import { isUuid, newId } from '../../lib/uuid.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type NewEvent, writeEvents } from '../../store/sql/events/write.ts';
import type { LockedJob } from '../../store/sql/jobs/lock.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import { changeLiveJobs, type LiveChange } from '../../store/sql/jobs/update.ts';
import { lockCapacity } from '../../store/sql/leases/capacity.ts';
import { findGrantsByJob } from '../../store/sql/leases/find-grants.ts';
import { grantLeases, type NewLease } from '../../store/sql/leases/grant.ts';
import { holdersAmong } from '../../store/sql/queue/candidates.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import { lockDecidable } from '../jobs/lock-decidable.ts';

interface RequestCall {
  jobId: string;
  holder: Holder;
  command: RequestLease;
}

type Answer = Grant | { kind: 'denied'; reason: string; missing: number };

/** Maximum requests of one transaction. */
const requestsMax = 250;

/**
 * Grants the leases of claimed jobs. A batch locks all its jobs in one order, then the capacity. It decides
 * one request after the other against both, and writes everything together. A row that another transaction
 * has locked delays no other request: its requests leave the batch and wait by themselves. So do requests for
 * a job that changed during the batch, because an answer must come from one read of the job.
 */
export class LeaseRequester {
  readonly #context: EngineContext;
  readonly #batcher: LockAwareBatcher<RequestCall, Answer | Error>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new LockAwareBatcher<RequestCall, Answer | Error>({
      flush: (calls, wait, signal) => this.#flush(calls, wait, signal),
      first: { meter: context.metrics.batch('request_lease'), sizeMax: requestsMax },
      lockedMeter: context.metrics.batch('request_lease_held'),
      waitingMax,
    });
  }

  async request(command: RequestLease, { principal, signal }: Caller): Promise<LeaseOutcome> {
    const { metrics } = this.#context;
    metrics.noteIds({ job_id: command.job_id, worker_id: command.worker_id });
    if (!isUuid(command.job_id)) throw jobNotFound(command.job_id);
    const call = { jobId: command.job_id.toLowerCase(), holder: holderOf(principal), command };
    const answer = await this.#batcher.run(call, signal);
    if (answer.kind === 'granted') {
      metrics.noteIds({ lease_id: answer.lease.leaseId, worker_id: answer.lease.workerId });
      return answer;
    }
    const { reason, missing } = answer;
    const retryAfterMs = await this.#context.retryHints.retryAfterMs({ units: missing });
    return { kind: 'denied', reason, retryAfterMs };
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  /** With `wait`, also waits for rows that other transactions have locked. */
  async #flush(
    calls: readonly RequestCall[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<(Answer | Error | RowLocked)[]> {
    const { database, settings, publisher, outageMonitor } = this.#context;
    await (wait ? outageMonitor.runOnce() : outageMonitor.ensureFresh());
    const jobIds = [...new Set(calls.map(({ jobId }) => jobId))];
    let hasReplays = false;
    const answers = await database.transaction(async (sql): Promise<(Answer | Error | RowLocked)[]> => {
      const locked = await lockDecidable(sql, jobIds, wait, signal);
      const facts = await lockCapacity(sql, settings.capacityTotal, signal);
      const uniqueAsked = [...locked.values()].filter(({ isUnique }) => isUnique);
      const holders = await holdersAmong(
        sql,
        uniqueAsked.flatMap(({ claimedBy }) => claimedBy ?? []),
      );
      const round = new LeaseRequestBatch(capacityOf({ ...facts, reserved: 0 }), holders, settings);
      const decisions = calls.map((call) => {
        const job = locked.get(call.jobId);
        return job && round.decide(job, call);
      });
      const granted = await round.write(sql);
      hasReplays = round.hasReplays;
      const ended = await readJobs(
        sql,
        jobIds.filter((jobId) => !locked.has(jobId)),
        signal,
      );
      return calls.map(({ jobId }, i) => {
        const verdict = decisions[i];
        if (verdict !== undefined && verdict !== 'granted') return verdict;
        const grant = granted.get(jobId);
        if (grant) return grant;
        // The lease of an earlier grant has expired since its row was locked.
        if (locked.has(jobId)) return rowLocked;
        const job = ended.get(jobId)?.job;
        if (job && !isTerminal(job.state)) return rowLocked;
        return job ? new DomainError('job_not_claimed', `the job is ${job.state}`) : jobNotFound(jobId);
      });
    }, signal);
    // Two requests for one job have the same grant.
    const granted = answers.filter(isGrant);
    publisher.publish({
      granted,
      nextDeadlineMs: granted.reduce(
        (ms, { lease }) => Math.min(ms, lease.expiresAtMs - lease.grantedAtMs),
        Number.POSITIVE_INFINITY,
      ),
      jobsChanged: jobIds,
    });
    if (hasReplays) await database.awaitStandby(signal);
    return answers;
  }
}

const isGrant = (answer: Answer | Error | RowLocked): answer is Grant =>
  answer !== rowLocked && !(answer instanceof Error) && answer.kind === 'granted';

/** The effects of one batch of requests on the jobs and the capacity that it has locked. */
class LeaseRequestBatch {
  readonly #settings: EngineContext['settings'];
  readonly #capacity: Capacity;
  /** Workers that hold a lease, as far as it matters for unique jobs. */
  readonly #holders: Set<string>;
  readonly #leases: NewLease[] = [];
  readonly #replays: string[] = [];
  readonly #changes = new Map<string, LiveChange>();
  readonly #events: NewEvent[] = [];

  constructor(capacity: Capacity, holders: ReadonlySet<string>, settings: EngineContext['settings']) {
    this.#capacity = { ...capacity };
    this.#holders = new Set(holders);
    this.#settings = settings;
  }

  /** 'granted' means that `write` returns the lease. */
  decide(job: LockedJob, { command, holder }: RequestCall): 'granted' | Answer | Error {
    try {
      if (command.addon_id != null && command.addon_id !== job.addonId) {
        throw new DomainError('job_mismatch', `the job is not of addon ${command.addon_id}`, {
          field: 'addon_id',
        });
      }
      const ask = {
        workerId: command.worker_id ?? null,
        holder,
        requestId: command.request_id ?? null,
        costUnits: job.costUnits,
        uniqueConflict: job.isUnique && this.#holders.has(job.claimedBy ?? ''),
      };
      const decision = decideRequest(job, ask, this.#capacity);
      if (decision.kind === 'replay') this.#replays.push(job.jobId);
      else if (decision.kind === 'grant') this.#grant(job, command, holder);
      else {
        this.#deny(job, decision.reason, ask.uniqueConflict);
        return { kind: 'denied', reason: decision.reason, missing: decision.missing };
      }
      return 'granted';
    } catch (error) {
      if (error instanceof Error) return error;
      throw error;
    }
  }

  /** An earlier grant was returned again. */
  get hasReplays(): boolean {
    return this.#replays.length > 0;
  }

  async write(sql: Sql) {
    await changeLiveJobs(sql, [...this.#changes.values()]);
    await writeEvents(sql, this.#events);
    const granted = await grantLeases(sql, this.#leases, {
      from: 'LEASE_PENDING',
      graceS: this.#settings.heartbeatGraceS,
      // A stream's job is delivered only to workers that ask for the stream, never to a claimer.
      keepsMessages: false,
    });
    if (this.#replays.length === 0) return granted;
    return new Map([...(await findGrantsByJob(sql, this.#replays)), ...granted]);
  }

  #grant(job: LockedJob, command: RequestLease, holder: Holder): void {
    this.#await(job);
    this.#changes.delete(job.jobId);
    const lease: NewLease = {
      jobId: job.jobId,
      leaseId: newId(),
      token: randomUUID(),
      workerId: job.claimedBy as string,
      holder,
      requestId: command.request_id ?? null,
      state: transition('grant').to,
      ttlS: command.ttl_sec ?? this.#settings.leaseTtlS,
      deliveryS: null,
    };
    this.#leases.push(lease);
    this.#holders.add(lease.workerId);
    this.#capacity.used += job.costUnits;
    this.#capacity.available -= job.costUnits;
    // A later request of the same batch sees the new state of the job.
    job.state = lease.state;
    job.requestId = lease.requestId;
    job.holder = holder;
    job.expiresAtMs = Number.POSITIVE_INFINITY;
  }

  /**
   * Waiting for capacity renews the claim. A worker that may not have the job keeps it only for the rest of
   * its claim; then other workers may take it.
   */
  #deny(job: LockedJob, reason: string, uniqueConflict: boolean): void {
    this.#await(job);
    const renewal = uniqueConflict ? {} : { claimTtlMs: this.#settings.claimTtlS * 1000 };
    this.#changes.set(job.jobId, { jobId: job.jobId, state: 'LEASE_PENDING', ...renewal });
    this.#events.push({
      jobId: job.jobId,
      type: 'LEASE_DENIED',
      from: 'LEASE_PENDING',
      to: 'LEASE_PENDING',
      actor: job.claimedBy ?? 'unknown',
      data: { reason, cost_units: job.costUnits },
    });
  }

  /** The claimer waits for a lease from now on. */
  #await(job: LockedJob): void {
    if (job.state === 'LEASE_PENDING') return;
    const { event: type, to } = transition('await lease');
    this.#events.push({ jobId: job.jobId, type, from: job.state, to, actor: job.claimedBy ?? 'unknown' });
    job.state = to;
  }
}

import type { AuditDraft } from '../../domain/access/audit.ts';
import { type Holder, holderOf } from '../../domain/access/holder.ts';
import { jobNotFound } from '../../domain/errors.ts';
import {
  type CancelDecision,
  contractState,
  decideCancel,
  decideStatus,
  illegal,
  type StatusDecision,
} from '../../domain/jobs/claim-policy.ts';
import type { Job, JsonObject } from '../../domain/jobs/job.ts';
import { allows, isClaimed, isTerminal, type State, transition } from '../../domain/jobs/state-machine.ts';
import { limits } from '../../domain/limits.ts';
import type { OperatorRequest, RetryJobs, UpdateJobStatus } from '../../domain/requests/scheduler.ts';
import { LockAwareBatcher, type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import { isUuid } from '../../lib/uuid.ts';
import type { EntitySql, Sql } from '../../store/connection/sql.ts';
import { recordAudit } from '../../store/sql/access/audit.ts';
import { type NewEvent, writeEvents } from '../../store/sql/events/write.ts';
import { findDeadLetters } from '../../store/sql/jobs/find.ts';
import type { LockedJob } from '../../store/sql/jobs/lock.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import {
  changeLiveJobs,
  type Ending,
  endJobs,
  type LiveChange,
  reviveJobs,
} from '../../store/sql/jobs/update.ts';
import { streamsOf } from '../../store/sql/streams/depths.ts';
import { ackMessages, addMessages, sentAmong } from '../../store/sql/streams/messages.ts';
import { audited, detailOf } from '../access/audit/audited.ts';
import type { CommitEffects } from '../context/commit-effects.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import { lockDecidable } from './lock-decidable.ts';

type ChangeCall = { jobId: string } & (
  | { kind: 'status'; command: UpdateJobStatus; peer: string; holder: Holder }
  | { kind: 'cancel'; command: OperatorRequest; peer: string; caller: Caller }
);

type StatusCall = Extract<ChangeCall, { kind: 'status' }>;

/** Maximum changes of one transaction. */
const changesMax = 500;

/**
 * Changes single jobs: a status reported by the worker, a cancellation, a retry. A batch locks all its rows
 * first, in one order. It decides one call after the other against the locked rows, and writes everything
 * together. A row that another transaction has locked delays no other call: its calls leave the batch and
 * wait by themselves. So do calls for a job that was requeued during the batch, because an answer must come
 * from one read of the job.
 */
export class JobUpdater {
  readonly #context: EngineContext;
  readonly #batcher: LockAwareBatcher<ChangeCall, Job | Error>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new LockAwareBatcher<ChangeCall, Job | Error>({
      flush: (calls, wait, signal) => this.#flush(calls, wait, signal),
      first: { meter: context.metrics.batch('change'), sizeMax: changesMax },
      lockedMeter: context.metrics.batch('change_held'),
      waitingMax,
    });
  }

  async updateStatus(jobId: string, command: UpdateJobStatus, caller: Caller): Promise<Job> {
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    const { peer, principal, signal } = caller;
    const holder = holderOf(principal);
    return this.#run({ kind: 'status', jobId: jobId.toLowerCase(), command, peer, holder }, signal);
  }

  async cancel(jobId: string, command: OperatorRequest, caller: Caller): Promise<Job> {
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    const { peer, signal } = caller;
    return this.#run({ kind: 'cancel', jobId: jobId.toLowerCase(), command, peer, caller }, signal);
  }

  async retry(jobId: string, command: OperatorRequest, caller: Caller): Promise<Job> {
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    const { signal } = caller;
    const { job, retried } = await this.#context.database.transaction(async (sql) => {
      for (;;) {
        const retried = await this.#retry(sql, [jobId], command, caller);
        const found = (await readJobs(sql, [jobId], signal)).get(jobId.toLowerCase());
        if (!found) throw jobNotFound(jobId);
        if (retried.jobsChanged.length > 0) {
          await recordAudit(sql, actOn(found.job.jobId, 'jobs.retry', command, caller));
          return { job: found.job, retried };
        }
        // A job that may be retried has ended between the two statements.
        if (!allows('retry', found.job.state)) throw illegal(found.job.state, 'QUEUED');
      }
    }, signal);
    this.#context.publisher.publish(retried);
    return job;
  }

  /** Retries dead letters, the oldest first, and returns their ids. */
  async retryDeadLetters(command: RetryJobs, caller: Caller): Promise<string[]> {
    const { signal } = caller;
    const retried = await this.#context.database.transaction(async (sql) => {
      const jobIds = await findDeadLetters(
        sql,
        {
          stream: command.stream ?? null,
          addonId: command.addon_id ?? null,
          jobType: command.job_type ?? null,
          errorCode: command.error_code ?? null,
          limit: command.limit ?? limits.retryJobs,
        },
        signal,
      );
      const done = await this.#retry(sql, jobIds, command, caller);
      const { length } = done.jobsChanged;
      if (length > 0) await recordAudit(sql, retriedDeadLetters(length, command, caller));
      return done;
    }, signal);
    this.#context.publisher.publish(retried);
    return retried.jobsChanged;
  }

  async #retry(sql: Sql, jobIds: readonly string[], by: OperatorRequest, caller: Caller): Promise<Retried> {
    const revived = await reviveJobs(sql, jobIds, transition('retry').from);
    const ids = revived.map(({ jobId }) => jobId).sort();
    await writeEvents(
      sql,
      revived.map(({ jobId, state, previous }) => ({
        jobId,
        type: transition('retry').event,
        from: state,
        to: 'QUEUED',
        actor: by.requested_by ?? caller.peer,
        data: { ...requestOf(by, caller), previous },
      })),
    );
    const queued = this.#context.transport.keepsMessages ? await addMessages(sql, ids) : [];
    return { jobsChanged: ids, jobsReturned: await streamsOf(sql, ids), messagesQueued: queued };
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  #run(call: ChangeCall, signal: AbortSignal | undefined): Promise<Job> {
    this.#context.metrics.noteIds({ job_id: call.jobId });
    return this.#batcher.run(call, signal);
  }

  /** With `wait`, also waits for rows that other transactions have locked. */
  async #flush(
    calls: readonly ChangeCall[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<(Job | Error | RowLocked)[]> {
    const { database, publisher, transport, outageMonitor } = this.#context;
    await (wait ? outageMonitor.runOnce() : outageMonitor.ensureFresh());
    const jobIds = [...new Set(calls.map(({ jobId }) => jobId))];
    const { answers, effects } = await database.transaction(async (sql) => {
      const changes = new ChangeBatch(await lockDecidable(sql, jobIds, wait, signal));
      const errors = calls.map((call) => changes.decide(call));
      await changes.write(sql);
      const messagesEnded = transport.keepsMessages
        ? sentAmong(await ackMessages(sql, changes.endedJobs))
        : [];
      const jobs = await readJobs(sql, jobIds, signal);
      const answers = calls.map((call, i) => {
        const job = jobs.get(call.jobId)?.job;
        const isChanged = changes.changedJobIds(call.jobId);
        if (job && !isChanged && !isTerminal(job.state)) return rowLocked;
        return errors[i] ?? answerOf(call, job, isChanged);
      });
      return { answers, effects: { ...changes.effects, jobsChanged: jobIds, messagesEnded } };
    }, signal);
    publisher.publish(effects);
    return answers;
  }
}

/** The effects of a retry, with the jobs that were requeued. */
type Retried = CommitEffects & { jobsChanged: string[] };

/** The effects of one batch of calls on the rows it has locked. */
class ChangeBatch {
  readonly #locked: ReadonlyMap<string, LockedJob>;
  readonly #live = new Map<string, LiveChange>();
  readonly #endings = new Map<string, Ending>();
  readonly #events: NewEvent[] = [];
  readonly #audited: AuditDraft[] = [];
  /** Leases whose workers are asked to stop. */
  readonly #asked: string[] = [];
  /** Number of requeued jobs. */
  #requeued = 0;

  constructor(locked: ReadonlyMap<string, LockedJob>) {
    this.#locked = locked;
  }

  /** Whether the job was live when the batch began, so that its calls have been decided here. */
  changedJobIds(jobId: string): boolean {
    return this.#locked.has(jobId);
  }

  /** Applies one call to the locked rows, or returns the reason why not. */
  decide(call: ChangeCall): Error | undefined {
    const job = this.#locked.get(call.jobId);
    const ending = this.#endings.get(call.jobId);
    if (!job) return undefined;
    if (ending) return changeOfTerminalJob(call, ending.state);
    try {
      if (call.kind === 'status') this.#updateStatus(job, call);
      else this.#cancel(job, call.command, call.caller);
      return undefined;
    } catch (error) {
      if (error instanceof Error) return error;
      throw error;
    }
  }

  /** Jobs that leave the queue or their worker. */
  get endedJobs(): string[] {
    return [...this.#endings.keys()];
  }

  get effects(): CommitEffects {
    const { size } = this.#endings;
    return {
      // Only a cancellation ends a job here. An ended job may have blocked others.
      ended: { ends: new Map([['CANCELED', size]]) },
      roomMade: size,
      // Only jobs without a stream can be claimed, and so be given back.
      jobsReturned: new Array<null>(this.#requeued).fill(null),
      // Their workers are notified before their next heartbeat.
      leasesChanged: this.#asked,
    };
  }

  async write(sql: EntitySql): Promise<void> {
    await changeLiveJobs(sql, [...this.#live.values()]);
    await endJobs(sql, [...this.#endings.values()]);
    await writeEvents(sql, this.#events);
    await recordAudit(sql, ...this.#audited);
  }

  #updateStatus(job: LockedJob, { command, peer, holder }: StatusCall): void {
    const reporter = { workerId: command.worker_id ?? null, holder };
    const decision: StatusDecision = decideStatus(job, command.state, reporter);
    const said = { note: command.note ?? null, progress: command.progress ?? null };
    const from = job.state;
    const to = decision.kind === 'move' ? transition(decision.verb).to : from;
    this.#change(job, { state: to, unclaim: isClaimed(from) && to === 'QUEUED', ...said });
    if (decision.kind === 'mark') return;
    const actor = command.worker_id ?? job.claimedBy ?? peer;
    const data = {
      ...(said.note === null ? {} : { note: said.note }),
      ...(to === 'QUEUED' ? { reason: 'given back' } : {}),
    };
    this.#events.push({ jobId: job.jobId, type: transition(decision.verb).event, from, to, actor, data });
    job.state = to;
    if (to !== 'QUEUED') return;
    job.claimedBy = null;
    job.holder = null;
    this.#requeued++;
  }

  #cancel(job: LockedJob, command: OperatorRequest, caller: Caller): void {
    const decision: CancelDecision = decideCancel(job.state);
    const event = {
      jobId: job.jobId,
      from: job.state,
      actor: command.requested_by ?? caller.peer,
      data: requestOf(command, caller),
    };
    const isEffective = decision.kind === 'end' || !job.cancelRequested;
    if (isEffective && isOperator(caller))
      this.#audited.push(actOn(job.jobId, 'jobs.cancel', command, caller));
    if (decision.kind === 'end') {
      this.#endings.set(job.jobId, { jobId: job.jobId, state: 'CANCELED', error: null });
      this.#events.push({ ...event, type: 'JOB_CANCELED', to: 'CANCELED' });
    } else if (!job.cancelRequested) {
      this.#change(job, { state: job.state, cancelRequested: true });
      this.#events.push({ ...event, type: 'JOB_CANCEL_REQUESTED', to: job.state });
      job.cancelRequested = true;
      if (job.leaseId !== null) this.#asked.push(job.leaseId);
    }
  }

  /** Merges a change with those of earlier calls of the batch to the same row. */
  #change(job: LockedJob, change: Omit<LiveChange, 'jobId'>): void {
    const before = this.#live.get(job.jobId);
    const kept = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== null));
    const unclaim = (before?.unclaim ?? false) || (change.unclaim ?? false);
    this.#live.set(job.jobId, { ...before, ...kept, jobId: job.jobId, state: change.state, unclaim });
  }
}

/** The job as the batch left it. For a job that had ended before, the answer that the contracts require. */
function answerOf(call: ChangeCall, job: Job | undefined, isChanged: boolean): Job | Error {
  if (!job) return jobNotFound(call.jobId);
  return isChanged ? job : (changeOfTerminalJob(call, job.state) ?? job);
}

/** A terminal job does not change: a call for the state it has is accepted, any other is refused. */
function changeOfTerminalJob(call: ChangeCall, state: State): Error | undefined {
  const wanted: State = call.kind === 'cancel' ? 'CANCELED' : call.command.state;
  return contractState(state) === wanted ? undefined : illegal(state, wanted);
}

/** The actor of the event is the name that the caller wrote; the principal is what its credential proves. */
const requestOf = ({ reason }: OperatorRequest, { principal }: Caller): JsonObject => ({
  reason: reason ?? null,
  ...(principal.kind === 'local' ? {} : { principal: principal.id }),
});

/** A submitter's cancellation is no privileged act, and is frequent. So is one without authentication. */
const isOperator = ({ principal: { kind, roles } }: Caller): boolean =>
  kind !== 'local' && roles.some((role) => role === 'operator' || role === 'admin');

const actOn = (
  jobId: string,
  action: 'jobs.retry' | 'jobs.cancel',
  { requested_by: requestedBy, reason }: OperatorRequest,
  caller: Caller,
): AuditDraft => audited(caller, { action, target: jobId, requestedBy, detail: detailOf({ reason }) });

const retriedDeadLetters = (jobs: number, command: RetryJobs, caller: Caller): AuditDraft => {
  const { stream, addon_id, job_type, error_code, reason, requested_by: requestedBy } = command;
  const detail = detailOf({ jobs, addon_id, job_type, error_code, reason });
  return audited(caller, {
    action: 'jobs.retry_dead_letters',
    target: stream ?? null,
    requestedBy,
    detail,
  });
};

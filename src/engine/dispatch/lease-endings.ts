import { closedAtMs } from '../../domain/explain/leases.ts';
import { backoffMs } from '../../domain/jobs/backoff.ts';
import type { FinalStatus, Json, JsonObject } from '../../domain/jobs/job.ts';
import { isTerminal, type State, transition } from '../../domain/jobs/state-machine.ts';
import type { Lease } from '../../domain/leases/lease.ts';
import { decideExpiry, isUnconfirmed, type LeaseEnd } from '../../domain/leases/lease-policy.ts';
import { limits } from '../../domain/limits.ts';
import { type CounterColumn, slotOf } from '../../domain/stats/series.ts';
import type { Envelope, SentMessage } from '../../domain/streams/stream-message.ts';
import { iso } from '../../domain/time.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type NewEvent, writeEvents } from '../../store/sql/events/write.ts';
import type { LockedJob } from '../../store/sql/jobs/lock.ts';
import { changeLiveJobs, type LiveChange } from '../../store/sql/jobs/update.ts';
import {
  closeLeases,
  type EndedLease,
  finishJobs,
  type JobEnding,
  type LeaseEnding,
} from '../../store/sql/leases/end.ts';
import type { LaneTally } from '../../store/sql/stats/tallies.ts';
import { ackMessages, addMessages, sentAmong } from '../../store/sql/streams/messages.ts';
import { readMessages } from '../../store/sql/streams/outbox.ts';
import { JobCounts } from '../../telemetry/job-metrics.ts';
import type { Transport } from '../../transport/transport.ts';
import type { CommitEffects } from '../context/commit-effects.ts';
import type { Disconnect } from '../leases/lease-subscriptions.ts';

/** What the worker reported when it released the lease, or the error of an expired one. */
export interface Outcome {
  result: Json;
  error: string | null;
  errorDetail: JsonObject | null;
  metrics: JsonObject | null;
}

export interface EndingRules {
  transport: Pick<Transport, 'keepsMessages'>;
  /** Maximum number of grants or claims in a row that may be lost before they started the job. */
  maxClaims: number;
}

/** What became of a job when its lease ended. */
export type EndOutcome = Pick<Lease, 'requeued' | 'deadLettered'>;

/** How a lease ended: released by its worker with a status, or expired. */
export type EndCause = { kind: 'RELEASED'; status: FinalStatus } | { kind: 'EXPIRED' };

/**
 * Leases that end in one transaction, with the effects on their locked jobs, the capacity and the events. All
 * effects are written together.
 */
export class LeaseEndings {
  /** By job id. */
  readonly #outcomes = new Map<string, EndOutcome>();
  /** Leases whose job continues, and those whose job ends. */
  readonly #leases: LeaseEnding[] = [];
  readonly #endings: JobEnding[] = [];
  readonly #changes: LiveChange[] = [];
  readonly #events: NewEvent[] = [];
  readonly #streams = new Map<string, string>();
  /** Jobs whose attempt does not count: their message in the stream stays valid. */
  readonly #undone = new Set<string>();
  readonly #keepsMessages: boolean;
  readonly #maxClaims: number;
  readonly #tallies = new Map<number, LaneTally>();
  /** How the jobs ended; the reaper adds those that ended without a lease. */
  readonly counts = new JobCounts();
  #units = 0;
  #nowMs = 0;
  /** Messages of ended attempts. */
  #settled: readonly SentMessage[] = [];
  /** Messages of further attempts. */
  #queued: readonly Envelope[] = [];

  constructor({ transport, maxClaims }: EndingRules) {
    this.#keepsMessages = transport.keepsMessages;
    this.#maxClaims = maxClaims;
  }

  /** Units that are freed. */
  get units(): number {
    return this.#units;
  }

  get count(): number {
    return this.#outcomes.size;
  }

  /** Jobs only end: no job is requeued, and no message has to be acked or sent. */
  get needsNoRequeue(): boolean {
    return this.#changes.length === 0 && !(this.#keepsMessages && this.#streams.size > 0);
  }

  /** What became of a job whose lease ends here. */
  outcomeOf(jobId: string): EndOutcome | undefined {
    return this.#outcomes.get(jobId);
  }

  /** To be published after the commit. */
  get effects() {
    return {
      ended: this.counts,
      unitsFreed: this.#units,
      roomMade: this.#outcomes.size,
      jobsChanged: [...this.#outcomes.keys()],
      jobsReady: this.#readyAgain,
      messagesEnded: this.#settled,
      messagesQueued: this.#queued,
    } satisfies CommitEffects;
  }

  /** The streams of the jobs that are ready again at once; null for a job without a stream. */
  get #readyAgain(): (string | null)[] {
    return this.#changes.flatMap(({ jobId, delayMs }) =>
      delayMs === 0 ? (this.#streams.get(jobId) ?? null) : [],
    );
  }

  /** The shortest delay after which a requeued job is ready. */
  get firstDelayMs(): number | undefined {
    const delays = this.#changes.flatMap(({ delayMs }) => delayMs ?? []);
    return delays.length === 0 ? undefined : Math.min(...delays);
  }

  add(
    job: LockedJob,
    { verb, isUndone = false }: LeaseEnd,
    cause: EndCause,
    outcome: Outcome,
    actor: string,
    closing?: Disconnect,
  ): void {
    const { jobId, leaseId, costUnits } = job;
    const { event: type, to } = transition(verb);
    const deadLettered = job.stream !== null && isGivenUp(to);
    if (job.stream !== null) this.#streams.set(jobId, job.stream);
    this.#units += costUnits;
    this.#nowMs = job.nowMs;
    this.#count(job, cause, to);
    this.#outcomes.set(jobId, { requeued: !isTerminal(to), deadLettered });
    const status = cause.kind === 'RELEASED' ? cause.status : null;
    const lease: LeaseEnding = {
      jobId,
      state: cause.kind,
      status,
      error: outcome.error,
      errorDetail: outcome.errorDetail,
      messageIds: job.messageIds ?? null,
    };
    const tell = (event: Pick<NewEvent, 'type' | 'from' | 'to' | 'data' | 'released'>) =>
      this.#events.push({ jobId, leaseId, actor, ...event });
    const from = job.state;
    const released = status === null ? {} : { released: status };
    if (status === null) tell({ type: 'LEASE_EXPIRED', from, to: from, data: expiryOf(job, closing) });
    if (isTerminal(to)) {
      const reason = reasonOf(job.cancelRequested ? wanted(outcome) : outcome);
      const isPlain = status !== null && verb === 'complete' && Object.keys(reason).length === 0;
      const { result, metrics } = outcome;
      const deadStream = deadLettered ? job.stream : null;
      this.#endings.push({ ...lease, to, result, metrics, deadStream, isPlain });
      if (!isPlain) tell({ type, from, to, data: reason, ...released });
      if (deadLettered) {
        this.counts.deadLetters++;
        const data = { stream: job.stream, attempts: job.attempts, ...reasonOf(outcome) };
        tell({ type: 'JOB_DEAD_LETTERED', from: to, to, data });
      }
      return;
    }
    this.#leases.push(lease);
    const requeue = { jobId, state: to, unclaim: true, cancelRequested: false };
    if (isUndone) {
      this.#undone.add(jobId);
      this.#changes.push({ ...requeue, delayMs: 0, undoesAttempt: true, claimsLost: job.claimsLost + 1 });
      const data = { reason: undelivered, attempts: job.attempts - 1, retry_in_ms: 0 };
      tell({ type, from, to, data, ...released });
      return;
    }
    const delayMs = backoffMs(job.retryBackoffS, job.attempts, Math.random());
    this.#changes.push({ ...requeue, delayMs, claimsLost: 0 });
    const data = { ...reasonOf(outcome), attempts: job.attempts, retry_in_ms: delayMs };
    tell({ type, from, to, data, ...released });
  }

  #count({ laneId, costUnits, startedAtMs, nowMs }: LockedJob, cause: EndCause, to: State): void {
    const tally = this.#tallies.get(laneId) ?? { laneId, runs: [] };
    this.#tallies.set(laneId, tally);
    tally.running = (tally.running ?? 0) - 1;
    tally.used = (tally.used ?? 0) - costUnits;
    if (startedAtMs !== null) {
      tally.runs.push(slotOf(nowMs - startedAtMs));
      this.counts.runMs.push(nowMs - startedAtMs);
    }
    if (cause.kind === 'EXPIRED') tally.expired = (tally.expired ?? 0) + 1;
    const end = countedEnds[to];
    if (!end) return;
    tally[end] = (tally[end] ?? 0) + 1;
    this.counts.ended(to);
  }

  /**
   * A lease that expired: its worker sent no heartbeat in time, or it has reached its maximum duration.
   * `closing` describes the stream that renewed it last, if that stream has closed.
   */
  addExpired(expired: LockedJob, actor: string, closing?: Disconnect): void {
    // A lease that reached its maximum duration counts as an attempt, whether its grant was confirmed or not.
    const job = isAtItsEnd(expired) ? { ...expired, claimExpiresAtMs: null } : expired;
    const heard = iso(job.lastHeartbeatAtMs) ?? 'its grant';
    const error = isUnconfirmed(job)
      ? `the lease expired: worker ${job.claimedBy} was not heard after its grant, and the grant was on its way for as long as it may`
      : isAtItsEnd(job)
        ? `the lease expired: it had lasted as long as max_runtime_s allows; the last heartbeat of worker ${job.claimedBy} came at ${heard}`
        : `the lease expired: worker ${job.claimedBy} has sent no heartbeat since ${heard}`;
    const outcome = { result: null, error, errorDetail: null, metrics: null };
    this.add(job, decideExpiry(job, this.#maxClaims), { kind: 'EXPIRED' }, outcome, actor, closing);
  }

  /**
   * Returns the ended leases if they are `wanted`. Also returns their units, which locks the capacity, unless
   * a `later` statement of the transaction does that.
   */
  async write(sql: Sql, { later = false, wanted = false } = {}): Promise<EndedLease[]> {
    if (this.#outcomes.size === 0) return [];
    if (this.#keepsMessages && this.#streams.size > 0) {
      const over = [...this.#streams.keys()].filter((jobId) => !this.#undone.has(jobId));
      const settled = await ackMessages(sql, over);
      this.#settled = sentAmong(settled);
      const kept = await readMessages(sql, [...this.#undone]);
      this.#keepNames([...settled, ...kept.values()]);
      const again = this.#changes.flatMap(({ jobId, undoesAttempt }) =>
        this.#streams.has(jobId) && !undoesAttempt ? jobId : [],
      );
      this.#queued = await addMessages(sql, again);
    }
    // The statements are pipelined. The first one carries the units and tallies of all endings.
    const all = { units: later ? 0 : this.#units, tallies: this.#tallies.values() };
    const nothing = { units: 0, tallies: [] };
    const written: Promise<EndedLease[]>[] = [];
    if (this.#endings.length > 0)
      written.push(finishJobs(sql, this.#endings, all, { nowMs: this.#nowMs, wanted }));
    if (this.#leases.length > 0)
      written.push(closeLeases(sql, this.#leases, written.length === 0 ? all : nothing, this.#nowMs));
    const ended = Promise.all(written);
    await Promise.all([ended, writeEvents(sql, this.#events), changeLiveJobs(sql, this.#changes)]);
    return (await ended).flat();
  }

  /**
   * Stores the message ids with the ended lease. A repeated release names the same message and is checked
   * against them.
   */
  #keepNames(known: readonly { jobId: string; messageIds: readonly string[] }[]): void {
    const names = new Map(known.map(({ jobId, messageIds }) => [jobId, messageIds]));
    for (const ending of [...this.#leases, ...this.#endings]) {
      if (this.#streams.has(ending.jobId)) ending.messageIds = names.get(ending.jobId) ?? [];
    }
  }
}

const undelivered = 'its grant did not reach the worker; that was no attempt';

/** The counter of jobs that end in each state. */
const countedEnds: Partial<Record<State, CounterColumn>> = {
  DONE: 'done',
  FAILED: 'failed',
  CANCELED: 'canceled',
  TIMEOUT: 'timeouts',
};

/** A stream's job that ends in one of these states is a dead letter. */
const isGivenUp = (state: State): boolean => state === 'FAILED' || state === 'TIMEOUT';

/** The event records a short reason. The result and the lease hold the full error. */
const reasonOf = ({ error, errorDetail }: Outcome): JsonObject => ({
  ...(error === null ? {} : { reason: error.slice(0, limits.noteChars).toWellFormed() }),
  ...(typeof errorDetail?.code === 'string' ? { code: errorDetail.code } : {}),
});

/**
 * If a cancellation was requested, it is the first reason, whatever the worker reported or failed to report.
 */
const wanted = (outcome: Outcome): Outcome => ({
  ...outcome,
  error: ['a client requested the cancellation', ...(outcome.error === null ? [] : [outcome.error])].join(
    '; ',
  ),
});

/** A lease that no heartbeat could have extended further. */
const isAtItsEnd = ({ expiresAtMs, leaseEndsAtMs }: LockedJob): boolean =>
  leaseEndsAtMs !== null && expiresAtMs === leaseEndsAtMs;

const expiryOf = (job: LockedJob, closing: Disconnect | undefined): JsonObject => ({
  worker_id: job.claimedBy,
  last_heartbeat_at: iso(job.lastHeartbeatAtMs),
  expires_at: iso(job.expiresAtMs),
  attempt: job.attempts,
  ...(isUnconfirmed(job) && { undelivered: true }),
  ...(closing && streamClosing(closing, job.nowMs, job.lastHeartbeatAtMs)),
});

/** Recorded only if the lease was not renewed in another way after the stream closed. */
function streamClosing({ how, agoMs }: Disconnect, nowMs: number, heardAtMs: number | null): JsonObject {
  const atMs = closedAtMs(agoMs, nowMs, heardAtMs);
  return atMs === undefined ? {} : { stream_closed_at: iso(atMs), stream_end: how };
}

import { type Holder, holderOf } from '../../domain/access/holder.ts';
import { DomainError } from '../../domain/errors.ts';
import { offerOf } from '../../domain/jobs/constraints.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';
import type { Grant, LeaseOutcome } from '../../domain/leases/lease.ts';
import { type ClaimFilter, requestClassOf } from '../../domain/queue/claim-filter.ts';
import type { AcquireLease } from '../../domain/requests/scheduler.ts';
import { abandoned } from '../../lib/async/batcher.ts';
import { WaitGroup } from '../../lib/async/wait-group.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { restrictFilter } from '../access/restrict-filter.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import { type AcquireCall, type Answer, denied, type Shortage } from '../dispatch/acquire-call.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import { type FilteredClass, ReadyClasses } from '../wakeups/ready-classes.ts';
import { WaitQueue, type WaitReason } from '../wakeups/wait-queue.ts';

/** The longest delay that a timer supports. */
const longestWaitMs = 2 ** 31 - 1;

/** What a gRPC stream requests of one request class. */
export interface FetchRequest {
  workerId: string;
  holder: Holder;
  filter: ClaimFilter;
  /** The TTL of the leases; null uses the setting. */
  ttlS: number | null;
  requestClass: string;
  /** How many jobs; read again before each attempt. */
  count(): number;
  /** Fires when the stream can take no more grants. */
  signal: AbortSignal | undefined;
  /** Ends the waiting, and nothing else. */
  idle: AbortSignal;
}

interface AcquireRequest {
  call: Omit<AcquireCall, 'count' | 'isExpected' | 'window' | 'precheck'>;
  count(): number;
  until: number;
  signal: AbortSignal | undefined;
  idle?: AbortSignal | undefined;
}

/**
 * Requests the next job with its lease from the dispatcher. Each call joins the wait queue of its request
 * class before it first calls the dispatcher, so that work which arrives meanwhile wakes it. A denied call
 * that may wait then waits there, and calls the dispatcher again when it is woken.
 */
export class Acquirer {
  readonly #context: EngineContext;
  readonly #dispatcher: Dispatcher;
  readonly #waitQueue: WaitQueue<FilteredClass>;
  readonly #retryHints: EngineContext['retryHints'];
  /** Waiting calls are answered at once. */
  #draining = false;
  #closed = false;
  readonly #open = new WaitGroup();

  constructor(context: EngineContext, dispatcher: Dispatcher) {
    this.#context = context;
    this.#dispatcher = dispatcher;
    this.#retryHints = context.retryHints;
    const sweeps = context.metrics.round('waiting_sweep');
    const ready = new ReadyClasses({ database: context.database, lowWaterMarks: context.lowWaterMarks });
    this.#waitQueue = new WaitQueue({
      findReady: (classes) => sweeps.time(() => ready.find(classes)),
    });
    context.notifier.onWork((work) => this.#waitQueue.wakeFor(work));
    context.notifier.onMissed(() => this.#waitQueue.recheck());
    context.notifier.addListenerCount(() => this.#waitQueue.length);
  }

  /** Number of calls that wait for work. */
  get waiting(): number {
    return this.#waitQueue.length;
  }

  /** Grants the next matching job, or denies with a reason. */
  async acquire(command: AcquireLease, { peer, principal, signal }: Caller): Promise<LeaseOutcome> {
    const filter = restrictFilter(principal, filterOf(command));
    const ttlS = command.ttl_sec ?? null;
    const requestClass = requestClassOf(filter, ttlS);
    const workerId = command.worker_id;
    const noteIds: Metrics['noteIds'] = (ids) => this.#context.metrics.noteIds(ids);
    noteIds({ worker_id: workerId });
    const call = {
      workerId,
      holder: holderOf(principal),
      requestId: command.request_id ?? null,
      requestClass,
      filter,
      ttlS,
      isStreamed: false,
    };
    const waitMs = command.wait_ms ?? 0;
    const until = performance.now() + waitMs;
    const onAnswered = this.#context.workers.asks({
      workerId,
      peer,
      kind: requestClass,
      filter,
      mayWait: waitMs > 0,
    });
    const answer = await this.#track({ call, count: () => 1, until, signal }).finally(onAnswered);
    if (answer.kind === 'granted') {
      const grant = answer.grants[0] as Grant;
      noteIds({ job_id: grant.job.jobId, lease_id: grant.lease.leaseId });
      return grant;
    }
    const { reason, shortage } = answer;
    return { kind: 'denied', reason, retryAfterMs: await this.#retryHints.retryAfterMs(shortage) };
  }

  /**
   * Fetches jobs for a gRPC stream and waits without limit. Returns none if the stream revokes its credit or
   * the server is about to stop.
   */
  async fetch({
    workerId,
    holder,
    filter,
    ttlS,
    requestClass,
    count,
    signal,
    idle,
  }: FetchRequest): Promise<readonly Grant[]> {
    if (this.#draining) return [];
    const call = { workerId, holder, requestId: null, requestClass, filter, ttlS, isStreamed: true };
    const until = Number.POSITIVE_INFINITY;
    const answer = await this.#track({ call, count, until, signal, idle });
    return answer.kind === 'granted' ? answer.grants : [];
  }

  /** Wakes all waiting calls. They get the answer of their last attempt. */
  stopWaiting(): void {
    this.#draining = true;
    this.#waitQueue.stop();
  }

  /** Settles when no call is left. */
  async close(): Promise<void> {
    this.stopWaiting();
    this.#closed = true;
    await this.#open.wait();
  }

  async #track(request: AcquireRequest): Promise<Answer> {
    if (this.#closed) throw new DomainError('unavailable', 'the server is shutting down');
    this.#open.add();
    try {
      return await this.#acquireOrWait(request);
    } finally {
      this.#open.done();
    }
  }

  /**
   * Calls the dispatcher until the request is granted, or denied and may not wait. This is the only loop. It
   * repeats the call at once if the dispatcher asks for that, and otherwise when the wait queue wakes it.
   */
  async #acquireOrWait({ call, count, until, signal, idle }: AcquireRequest): Promise<Answer> {
    if (this.#waitQueue.length >= waitingMax) {
      throw new DomainError('overloaded', 'too many calls are waiting for work; try again later');
    }
    const waiter = this.#waitQueue.join({
      name: call.requestClass,
      streams: call.filter.streams ?? [''],
      filter: call.filter,
    });
    let served = false;
    let next: AcquireCall | undefined;
    try {
      for (;;) {
        if (signal?.aborted) throw abandoned(signal);
        const isExpected = waiter.wakeup !== undefined;
        const answer = await this.#dispatcher.acquire(
          next ?? { ...call, count: count(), isExpected },
          signal,
        );
        next = undefined;
        if (answer.kind === 'again') {
          // A stream may have revoked its credit meanwhile.
          const left = count();
          if (left === 0 || idle?.aborted) return denied('the credit was revoked', nothingMissing);
          next = { ...answer.call, count: left };
          continue;
        }
        served = answer.kind === 'granted';
        if (answer.kind === 'granted') return answer;
        const left = Math.min(until - performance.now(), longestWaitMs);
        if (left > 0 && !this.#draining) {
          const waiting = this.#waitQueue.wait(waiter, left, waitReasonOf(answer.shortage), idle ?? signal);
          this.#context.notifier.announce();
          await waiting;
        }
        if (left <= 0 || this.#draining || idle?.aborted) return answer;
      }
    } finally {
      this.#waitQueue.leave(waiter, served);
    }
  }
}

const nothingMissing: Shortage = { jobs: 0, barred: false };

const waitReasonOf = (missing: Shortage): WaitReason =>
  'units' in missing ? 'room' : missing.barred ? 'barred' : 'jobs';

/** Which jobs match this command. */
export function filterOf(command: AcquireLease): ClaimFilter {
  const types = command.accept_job_types ?? [];
  const streams = command.streams ?? [];
  return {
    streams: streams.length === 0 ? null : [...new Set(streams)],
    addonId: command.addon_id ?? null,
    jobTypes: types.length === 0 ? null : [...new Set(types)].sort(),
    maxCostUnits: command.max_units ?? null,
    ...offerOf((command.constraints_capabilities ?? {}) as JsonObject),
  };
}

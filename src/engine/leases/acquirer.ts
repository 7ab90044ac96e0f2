import { DomainError } from '../../domain/errors.ts';
import { offerOf } from '../../domain/jobs/constraints.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';
import type { Grant, LeaseOutcome } from '../../domain/leases/lease.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { AcquireLease } from '../../domain/requests/scheduler.ts';
import { abandoned } from '../../lib/async/batcher.ts';
import { OpenCalls } from '../../lib/async/wait-group.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import { Scout } from '../dispatch/availability-probe.ts';
import type { Desk } from '../dispatch/dispatcher.ts';
import type { AcquireCall, Answer, Missing } from '../dispatch/grant-batch.ts';
import type { Prospects } from '../dispatch/retry-hints.ts';
import { type FilterKind, ReadyKinds } from '../wakeups/ready-kinds.ts';
import { WaitingLine, type Want } from '../wakeups/wait-queue.ts';

/** A timer can be set no further. */
const longestWaitMs = 2 ** 31 - 1;

/** What a stream wants of one kind. */
export interface Fetching {
  workerId: string;
  filter: ClaimFilter;
  /** The TTL of the leases; null for that of the settings. */
  ttlS: number | null;
  kind: string;
  /** How many jobs; asked for anew whenever there may be some. */
  count(): number;
  /** Nobody is there any more to take them. */
  signal: AbortSignal | undefined;
  /** Ends the waiting, and nothing else. */
  idle: AbortSignal;
}

interface Asking {
  call: Omit<AcquireCall, 'count'>;
  count(): number;
  until: number;
  signal: AbortSignal | undefined;
  idle?: AbortSignal | undefined;
}

/**
 * Takes the next job with its lease, at the desk. A call that may wait goes into the line of its kind when there is nothing
 * for it, and asks again when it is woken.
 */
export class Acquirer {
  readonly #context: EngineContext;
  readonly #desk: Desk;
  readonly #scout: Scout;
  readonly #line: WaitingLine<FilterKind>;
  readonly #prospects: Prospects;
  /** Whoever waits is let go. */
  #hurried = false;
  #closed = false;
  readonly #open = new OpenCalls();

  constructor(context: EngineContext, desk: Desk) {
    this.#context = context;
    this.#desk = desk;
    this.#scout = new Scout(context);
    this.#prospects = context.prospects;
    const sweeps = context.metrics.round('waiting_sweep');
    const ready = new ReadyKinds({ database: context.database, places: context.headMarks });
    this.#line = new WaitingLine({
      findReady: (kinds) => sweeps.time(() => ready.find(kinds)),
    });
    context.waker.onWork((work) => this.#line.wakeFor(work));
    context.waker.onMissed(() => this.#line.lookAgain());
    context.waker.countWaiters(() => this.#line.length);
  }

  /** How many wait for work. */
  get waiting(): number {
    return this.#line.length;
  }

  /** The next job that suits with its lease, or why there is none. */
  async acquire(command: AcquireLease, { peer, signal }: Caller): Promise<LeaseOutcome> {
    const filter = filterOf(command);
    const ttlS = command.ttl_sec ?? null;
    const kind = kindOf(filter, ttlS);
    const workerId = command.worker_id;
    const noteIds: Metrics['noteIds'] = (ids) => this.#context.metrics.noteIds(ids);
    noteIds({ worker_id: workerId });
    const call = {
      workerId,
      requestId: command.request_id ?? null,
      kind,
      filter,
      ttlS,
      isStreamed: false,
    };
    const waitMs = command.wait_ms ?? 0;
    const until = performance.now() + waitMs;
    const onAnswered = this.#context.workers.asks({ workerId, peer, kind, filter, mayWait: waitMs > 0 });
    const answer = await this.#attend({ call, count: () => 1, until, signal }).finally(onAnswered);
    if (answer.kind === 'granted') {
      const grant = answer.grants[0] as Grant;
      noteIds({ job_id: grant.job.jobId, lease_id: grant.lease.leaseId });
      return grant;
    }
    const { reason, missing } = answer;
    return { kind: 'denied', reason, retryAfterMs: await this.#prospects.retryAfterMs(missing) };
  }

  /** Jobs for a stream, waiting for as long as it takes. Nothing where it wants none any more, or the server is about to stop. */
  async fetch({ workerId, filter, ttlS, kind, count, signal, idle }: Fetching): Promise<readonly Grant[]> {
    if (this.#hurried) return [];
    const call = { workerId, requestId: null, kind, filter, ttlS, isStreamed: true };
    const until = Number.POSITIVE_INFINITY;
    const answer = await this.#attend({ call, count, until, signal, idle });
    return answer.kind === 'granted' ? answer.grants : [];
  }

  /** Lets those go who wait, with the answer they have got without waiting. */
  stopWaiting(): void {
    this.#hurried = true;
    this.#line.stop();
  }

  /** Settles when nobody is at the desk any more. */
  async close(): Promise<void> {
    this.stopWaiting();
    this.#closed = true;
    await this.#open.none();
    await this.#scout.close();
  }

  async #attend(asking: Asking): Promise<Answer> {
    if (this.#closed) throw new DomainError('unavailable', 'the server is shutting down');
    this.#open.begin();
    try {
      return await this.#askAndWait(asking);
    } finally {
      this.#open.end();
    }
  }

  async #askAndWait({ call, count, until, signal, idle }: Asking): Promise<Answer> {
    if (this.#line.length >= waitingMax) {
      throw new DomainError('overloaded', 'too many calls are waiting for work; try again later');
    }
    const place = this.#line.join({
      name: call.kind,
      streams: call.filter.streams ?? [''],
      filter: call.filter,
    });
    let served = false;
    try {
      for (;;) {
        if (signal?.aborted) throw abandoned(signal);
        const isCalled = place.called !== undefined;
        const answer = await this.#ask({ ...call, count: count() }, isCalled, signal);
        served = answer.kind === 'granted';
        if (answer.kind === 'granted') return answer;
        const left = Math.min(until - performance.now(), longestWaitMs);
        if (left > 0 && !this.#hurried) {
          const waiting = this.#line.wait(place, left, wantOf(answer.missing), idle ?? signal);
          this.#context.waker.announce();
          await waiting;
        }
        if (left <= 0 || this.#hurried || idle?.aborted) return answer;
      }
    } finally {
      this.#line.leave(place, served);
    }
  }

  /** Where it is likely that there is nothing, that is looked at first. */
  async #ask(call: AcquireCall, isCalled: boolean, signal: AbortSignal | undefined): Promise<Answer> {
    if (isCalled || this.#desk.expectsMore(call.kind)) return this.#desk.giveOut(call, signal);
    const outlook = await this.#scout.look(call, signal);
    if (outlook === 'promising') return this.#desk.giveOut(call, signal);
    return call.requestId === null ? outlook : this.#desk.giveOut({ ...call, outlook }, signal);
  }
}

/** Calls of one kind are dealt to by one statement, which gives all its leases one TTL. */
export const kindOf = (filter: ClaimFilter, ttlS: number | null): string =>
  ttlS === null ? JSON.stringify(filter) : JSON.stringify({ ...filter, ttlS });

const wantOf = (missing: Missing): Want => ('units' in missing ? 'room' : missing.barred ? 'barred' : 'jobs');

/** Which jobs suit who asks with this command. */
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

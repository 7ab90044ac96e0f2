import type { AcquireLease } from '../domain/commands.ts';
import { offerOf } from '../domain/constraints.ts';
import { DomainError } from '../domain/errors.ts';
import type { JsonObject } from '../domain/job.ts';
import type { LeaseOutcome } from '../domain/lease.ts';
import type { ClaimFilter } from '../store/statements/heads.ts';
import { readyStreams } from '../store/statements/streams.ts';
import { abandoned } from './batcher.ts';
import { type Caller, type EngineContext, waitingMax } from './context.ts';
import type { Desk } from './desk.ts';
import type { AcquireCall, Answer, Missing } from './give.ts';
import type { Prospects } from './prospects.ts';
import { Scout } from './scout.ts';
import { WaitingLine, type Want } from './waiting-line.ts';

/**
 * Takes the next job with its lease, at the desk. A call that may wait goes into the line of its kind when there is nothing
 * for it, and asks again when it is woken.
 */
export class Acquirer {
  readonly #context: EngineContext;
  readonly #desk: Desk;
  readonly #scout: Scout;
  readonly #line: WaitingLine;
  readonly #prospects: Prospects;
  /** Whoever waits is let go. */
  #hurried = false;
  #closed = false;
  readonly #underWay = new Set<Promise<LeaseOutcome>>();

  constructor(context: EngineContext, desk: Desk) {
    this.#context = context;
    this.#desk = desk;
    this.#scout = new Scout(context);
    this.#prospects = context.prospects;
    const sweeps = context.metrics.round('waiting_sweep');
    this.#line = new WaitingLine({
      findReady: () => sweeps.time(() => readyStreams(context.database)),
    });
    context.waker.onWork((work) => this.#line.wakeFor(work));
    context.waker.countWaiters(() => this.#line.length);
  }

  /** How many wait for work. */
  get waiting(): number {
    return this.#line.length;
  }

  async acquire(command: AcquireLease, caller: Caller): Promise<LeaseOutcome> {
    if (this.#closed) throw new DomainError('unavailable', 'the server is shutting down');
    const work = this.#acquire(command, caller);
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
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
    await Promise.allSettled(this.#underWay);
    await this.#scout.close();
  }

  async #acquire(command: AcquireLease, { signal }: Caller): Promise<LeaseOutcome> {
    const filter = filterOf(command);
    const kind = JSON.stringify(filter);
    const until = performance.now() + (command.wait_ms ?? 0);
    const call = { workerId: command.worker_id, requestId: command.request_id ?? null, kind, filter };
    if (this.#line.length >= waitingMax) {
      throw new DomainError('overloaded', 'too many calls are waiting for work; try again later');
    }
    const place = this.#line.join({ name: kind, streams: filter.streams ?? [''] });
    let served = false;
    try {
      for (;;) {
        if (signal?.aborted) throw abandoned(signal);
        const isCalled = place.called !== undefined;
        const answer = await this.#ask(call, isCalled, signal);
        served = answer.kind === 'granted';
        if (answer.kind === 'granted') return answer;
        const left = until - performance.now();
        if (left > 0 && !this.#hurried) {
          const waiting = this.#line.wait(place, left, wantOf(answer.missing), signal);
          this.#context.waker.announce();
          await waiting;
        }
        if (left <= 0 || this.#hurried) {
          const { reason, missing } = answer;
          return { kind: 'denied', reason, retryAfterMs: await this.#prospects.retryAfterMs(missing) };
        }
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

const wantOf = (missing: Missing): Want => ('units' in missing ? 'room' : missing.barred ? 'barred' : 'jobs');

function filterOf(command: AcquireLease): ClaimFilter {
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

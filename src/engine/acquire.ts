import { randomUUID } from 'node:crypto';
import { capacityOf, noJobs } from '../domain/capacity.ts';
import type { AcquireLease } from '../domain/commands.ts';
import { offerOf } from '../domain/constraints.ts';
import type { JsonObject } from '../domain/job.ts';
import type { Capacity, LeaseOutcome } from '../domain/lease.ts';
import { type Candidate, type Dealt, dealJobs } from '../domain/leases.ts';
import { transition } from '../domain/machine.ts';
import type { Sql } from '../store/sql.ts';
import { lockCapacity, readCapacity } from '../store/statements/capacity.ts';
import {
  findGrantsByRequest,
  grantLeases,
  holdersAmong,
  lockCandidates,
  parkJobs,
} from '../store/statements/grant-leases.ts';
import type { ClaimFilter } from '../store/statements/heads.ts';
import { abandoned, Batcher } from './batcher.ts';
import { type Caller, type EngineContext, waitingMax } from './context.ts';
import { grantOf } from './grant.ts';
import { newId } from './ids.ts';
import type { Prospects } from './prospects.ts';
import { WaitingLine } from './waiting-line.ts';

interface AcquireCall {
  workerId: string;
  requestId: string | null;
}

/** What a call came to. Why there is nothing is said in words; when to ask again is found out for those who are told. */
type Answer =
  | Extract<LeaseOutcome, { kind: 'granted' }>
  | { kind: 'denied'; reason: string; missing: { jobs: number } | { units: number } };

/** Leases of one transaction at the most. */
const grantsMax = 250;

/**
 * Takes the next job with its lease. Calls that ask for the same kind of jobs share a batcher, and so a transaction;
 * one that may wait goes into the line of its kind when there is nothing for it, and asks again when it is woken.
 */
export class Acquirer {
  readonly #context: EngineContext;
  readonly #batchers = new Map<string, Batcher<AcquireCall, Answer>>();
  readonly #line = new WaitingLine();
  readonly #prospects: Prospects;
  /** Whoever waits is let go. */
  #hurried = false;
  #closed = false;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#prospects = context.prospects;
    context.waker.onWork((count) => this.#line.wakeAll(count));
    context.waker.countWaiters(() => this.#line.length);
  }

  async acquire(command: AcquireLease, { signal }: Caller): Promise<LeaseOutcome> {
    const filter = filterOf(command);
    const kind = JSON.stringify(filter);
    const until = performance.now() + (command.wait_ms ?? 0);
    const call = { workerId: command.worker_id, requestId: command.request_id ?? null };
    const place = this.#line.join(kind);
    let served = false;
    try {
      for (;;) {
        if (signal?.aborted) throw abandoned(signal);
        const answer = await this.#batcherFor(kind, filter).run(call, signal);
        place.called = false;
        served = answer.kind === 'granted';
        if (answer.kind === 'granted') return answer;
        const left = until - performance.now();
        if (left <= 0 || this.#hurried) {
          const { reason, missing } = answer;
          return { kind: 'denied', reason, retryAfterMs: await this.#prospects.retryAfterMs(missing) };
        }
        const waiting = this.#line.wait(place, left, signal);
        this.#context.waker.announce();
        await waiting;
      }
    } finally {
      this.#line.leave(place, served);
    }
  }

  /** Lets those go who wait, with the answer they would have got without waiting. */
  stopWaiting(): void {
    this.#hurried = true;
    this.#line.stop();
  }

  async close(): Promise<void> {
    this.stopWaiting();
    this.#closed = true;
    await Promise.all([...this.#batchers.values()].map((batcher) => batcher.close()));
  }

  #batcherFor(kind: string, filter: ClaimFilter): Batcher<AcquireCall, Answer> {
    const known = this.#batchers.get(kind);
    if (known) return known;
    const batcher = new Batcher<AcquireCall, Answer>({
      flush: (calls, signal) => this.#flush(filter, calls, signal),
      sizeMax: grantsMax,
      waitingMax,
      onIdle: () => this.#batchers.delete(kind),
    });
    if (this.#closed) void batcher.close();
    else this.#batchers.set(kind, batcher);
    return batcher;
  }

  async #flush(
    filter: ClaimFilter,
    calls: readonly AcquireCall[],
    signal: AbortSignal | undefined,
  ): Promise<Answer[]> {
    const { database, settings, reaper, waker, pulse } = this.#context;
    await pulse.fresh();
    const answers = await database.transaction(async (sql) => {
      const found = await replay(sql, calls, signal);
      const names = calls.map(nameOf);
      // The same request twice in one batch is one request.
      const fresh = new Map<string, AcquireCall>();
      for (const [i, name] of names.entries()) if (!found.has(name)) fresh.set(name, calls[i] as AcquireCall);
      const dealt = await deal(sql, filter, [...fresh.values()], settings, signal);
      for (const [i, name] of [...fresh.keys()].entries()) found.set(name, dealt[i] as Answer);
      return names.map((name) => found.get(name) as Answer);
    }, signal);
    const granted = answers.flatMap((answer) => (answer.kind === 'granted' ? answer.job.jobId : []));
    if (granted.length > 0) {
      reaper.expectIn((settings.leaseTtlS + settings.heartbeatGraceS) * 1000);
      waker.publishJobs(granted);
    }
    return answers;
  }
}

/** What tells a call of a batch from the others; a call without a request is like no other. */
const nameOf = ({ workerId, requestId }: AcquireCall, i: number): string =>
  requestId === null ? `#${i}` : JSON.stringify([workerId, requestId]);

function filterOf(command: AcquireLease): ClaimFilter {
  const types = command.accept_job_types ?? [];
  return {
    addonId: command.addon_id ?? null,
    jobTypes: types.length === 0 ? null : [...new Set(types)].sort(),
    maxCostUnits: command.max_units ?? null,
    ...offerOf((command.constraints_capabilities ?? {}) as JsonObject),
  };
}

/** What the same worker was granted under the same request before and still holds is the answer again. */
async function replay(
  sql: Sql,
  calls: readonly AcquireCall[],
  signal: AbortSignal | undefined,
): Promise<Map<string, Answer>> {
  const requestIds = calls.flatMap(({ requestId }) => requestId ?? []);
  if (requestIds.length === 0) return new Map();
  const held = await findGrantsByRequest(sql, requestIds, signal);
  return new Map(
    held.map((record) => [
      nameOf({ workerId: record.worker_id, requestId: record.request_id }, 0),
      grantOf(record),
    ]),
  );
}

/** Deals what the queue and the capacity allow, and carries it out. */
async function deal(
  sql: Sql,
  filter: ClaimFilter,
  calls: readonly AcquireCall[],
  settings: EngineContext['settings'],
  signal: AbortSignal | undefined,
): Promise<Answer[]> {
  if (calls.length === 0) return [];
  const workers = calls.map(({ workerId }) => workerId);
  const dealt = await judge(sql, filter, workers, settings, signal);
  const graceMs = settings.heartbeatGraceS * 1000;
  const leases = dealt.flatMap((one, i) =>
    one?.kind === 'grant'
      ? {
          jobId: one.jobId,
          leaseId: newId(),
          token: randomUUID(),
          workerId: workers[i] as string,
          requestId: calls[i]?.requestId ?? null,
          state: transition('acquire').to,
          ttlS: settings.leaseTtlS,
        }
      : [],
  );
  const granted = await grantLeases(sql, leases, 'QUEUED', graceMs);
  return dealt.map((one): Answer => {
    if (one === undefined) return { kind: 'denied', reason: noJobs, missing: { jobs: 1 } };
    if (one.kind === 'deny') return { kind: 'denied', reason: one.reason, missing: { units: one.missing } };
    const record = granted.get(one.jobId);
    if (!record) throw new Error(`job ${one.jobId} was locked and could not be leased`);
    return grantOf(record);
  });
}

/**
 * Locks the next jobs, then the capacity, and decides. Where the capacity is already gone no job is locked for it, and
 * jobs that cost more than all there is are put aside on the way.
 */
async function judge(
  sql: Sql,
  filter: ClaimFilter,
  workers: readonly string[],
  settings: EngineContext['settings'],
  signal: AbortSignal | undefined,
): Promise<Dealt[]> {
  const before = capacityOf({ ...(await readCapacity(sql, settings.capacityTotal, signal)), reserved: 0 });
  if (before.available <= 0) return dealJobs([], workers, new Set(), before);
  const candidates = await lockCandidates(sql, filter, workers.length, true, signal);
  if (candidates.length === 0) return workers.map(() => undefined);
  const facts = await lockCapacity(sql, settings.capacityTotal, signal);
  const capacity = capacityOf({ ...facts, reserved: 0 });
  const tooLarge = candidates.filter(({ costUnits }) => costUnits > facts.total);
  if (tooLarge.length > 0) {
    await parkJobs(
      sql,
      tooLarge.map(({ jobId }) => jobId),
      facts.total,
    );
    // Whoever holds the capacity waits for no row, and heads are locked without waiting.
    return judge(sql, filter, workers, settings, signal);
  }
  const holders = candidates.some(({ isUnique }) => isUnique)
    ? await holdersAmong(sql, workers)
    : new Set<string>();
  const dealt = dealJobs(candidates, workers, holders, capacity);
  const taken = new Set(dealt.flatMap((one) => (one?.kind === 'grant' ? one.jobId : [])));
  const uniqueLeft = candidates.some(({ jobId, isUnique }) => isUnique && !taken.has(jobId));
  if (!uniqueLeft || dealt.every((one) => one !== undefined)) return dealt;
  return dealCommon(sql, filter, workers, dealt, candidates, capacity, signal);
}

/** Unique jobs may hide others from workers that may not have them: those look again, for jobs that anybody may have. */
async function dealCommon(
  sql: Sql,
  filter: ClaimFilter,
  workers: readonly string[],
  dealt: Dealt[],
  seen: readonly Candidate[],
  capacity: Capacity,
  signal: AbortSignal | undefined,
): Promise<Dealt[]> {
  const taken = new Set(dealt.flatMap((one) => (one?.kind === 'grant' ? one.jobId : [])));
  const units = seen.reduce((sum, { jobId, costUnits }) => (taken.has(jobId) ? sum + costUnits : sum), 0);
  const open = workers.filter((_, i) => dealt[i] === undefined);
  const common = await lockCandidates(sql, filter, open.length + taken.size, false, signal);
  const left = common.filter(({ jobId }) => !taken.has(jobId));
  const rest = { ...capacity, used: capacity.used + units, available: capacity.available - units };
  const more = dealJobs(left, open, new Set(), rest);
  return dealt.map((one) => one ?? more.shift());
}

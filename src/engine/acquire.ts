import { randomUUID } from 'node:crypto';
import { capacityOf, noJobs } from '../domain/capacity.ts';
import type { AcquireLease } from '../domain/commands.ts';
import { offerOf } from '../domain/constraints.ts';
import { DomainError } from '../domain/errors.ts';
import type { JsonObject } from '../domain/job.ts';
import type { Capacity, Grant, LeaseOutcome } from '../domain/lease.ts';
import { type Candidate, type Dealt, dealJobs } from '../domain/leases.ts';
import { limits } from '../domain/limits.ts';
import { transition } from '../domain/machine.ts';
import type { Sql } from '../store/sql.ts';
import { lockCapacity, readCapacity, shareCapacity } from '../store/statements/capacity.ts';
import {
  anyCandidate,
  findGrantsByRequest,
  grantLeases,
  holdersAmong,
  type LockedCandidate,
  lockCandidates,
  parkJobs,
} from '../store/statements/grant-leases.ts';
import type { ClaimFilter } from '../store/statements/heads.ts';
import { readyStreams } from '../store/statements/streams.ts';
import { abandoned, Batcher } from './batcher.ts';
import { type Caller, type EngineContext, waitingMax } from './context.ts';
import { grantOf } from './grant.ts';
import { newId } from './ids.ts';
import type { Prospects } from './prospects.ts';
import { Turns } from './turns.ts';
import { WaitingLine, type Want } from './waiting-line.ts';

interface AcquireCall {
  workerId: string;
  requestId: string | null;
  /** Somebody has said that there may be something. */
  isCalled: boolean;
}

/** What a call came to. Why there is nothing is said in words; when to ask again is found out for those who are told. */
type Answer =
  | Extract<LeaseOutcome, { kind: 'granted' }>
  | { kind: 'denied'; reason: string; missing: Missing };

/** What there is too little of: jobs, of which some may be `barred` because the worker holds a lease, or units. */
type Missing = { jobs: number; barred: boolean } | { units: number };

/** Leases of one transaction at the most. */
const grantsMax = 250;
/** Kinds that are served at the same time: they wait for each other at the capacity, and connections are for all. */
const kindsAtOnce = 3;
/** Jobs that are put aside in one transaction. */
const parkMax = 200;

/**
 * Takes the next job with its lease. Calls that ask for the same kind of jobs share a batcher, and so a transaction;
 * one that may wait goes into the line of its kind when there is nothing for it, and asks again when it is woken.
 */
export class Acquirer {
  readonly #context: EngineContext;
  readonly #batchers = new Map<string, Batcher<AcquireCall, Answer>>();
  readonly #line: WaitingLine;
  readonly #prospects: Prospects;
  readonly #turns = new Turns(kindsAtOnce);
  /** Whoever waits is let go. */
  #hurried = false;
  #closed = false;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#prospects = context.prospects;
    this.#line = new WaitingLine({ findReady: () => readyStreams(context.database) });
    context.waker.onWork((work) => this.#line.wakeFor(work));
    context.waker.countWaiters(() => this.#line.length);
  }

  async acquire(command: AcquireLease, { signal }: Caller): Promise<LeaseOutcome> {
    const filter = filterOf(command);
    const kind = JSON.stringify(filter);
    const until = performance.now() + (command.wait_ms ?? 0);
    const call = { workerId: command.worker_id, requestId: command.request_id ?? null };
    if (this.#line.length >= waitingMax) {
      throw new DomainError('overloaded', 'too many calls are waiting for work; try again later');
    }
    const place = this.#line.join({ name: kind, streams: filter.streams ?? [''] });
    let served = false;
    try {
      for (;;) {
        if (signal?.aborted) throw abandoned(signal);
        const isCalled = place.called !== undefined;
        const answer = await this.#batcherFor(kind, filter).run({ ...call, isCalled }, signal);
        served = answer.kind === 'granted';
        if (answer.kind === 'granted') return answer;
        const left = until - performance.now();
        if (left <= 0 || this.#hurried) {
          const { reason, missing } = answer;
          return { kind: 'denied', reason, retryAfterMs: await this.#prospects.retryAfterMs(missing) };
        }
        const waiting = this.#line.wait(place, left, wantOf(answer.missing), signal);
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
    // Where the last round got something, so will the next one most likely.
    let expectsMore = false;
    const batcher = new Batcher<AcquireCall, Answer>({
      flush: async (calls, signal) => {
        const mayFind = expectsMore || calls.some(({ isCalled }) => isCalled);
        const answers = await this.#flush(filter, calls, mayFind, signal);
        expectsMore = answers.some(({ kind }) => kind === 'granted');
        return answers;
      },
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
    expectsMore: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Answer[]> {
    const { database, settings, reaper, waker, pulse } = this.#context;
    await pulse.fresh();
    const answers = new Map<AcquireCall, Answer>();
    let open = [...calls];
    while (open.length > 0) {
      const round = await this.#turns.take(() =>
        database.transaction(
          (sql) => answerAll(sql, { filter, settings, expectsMore }, open, signal),
          signal,
        ),
      );
      if (round.kind === 'park') await this.#park(filter, round.unique);
      else for (const [call, answer] of round.answers) answers.set(call, answer);
      open = open.filter((call) => !answers.has(call));
    }
    const granted = [...answers.values()].filter((answer) => answer.kind === 'granted');
    if (granted.length > 0) {
      reaper.expectIn((settings.leaseTtlS + settings.heartbeatGraceS) * 1000);
      waker.publishJobs(granted.map(({ job }) => job.jobId));
      await Promise.all(granted.map((grant) => this.#nameMessage(grant)));
    }
    return calls.map((call) => answers.get(call) as Answer);
  }

  /** A worker is told the name of its job's message, which may not have been known to the database yet. */
  async #nameMessage(grant: Grant): Promise<void> {
    const { job, lease } = grant;
    if (job.stream === null) return;
    const envelope = { jobId: job.jobId, stream: job.stream, attempt: lease.attempt };
    grant.messageId = await this.#context.transport.nameOf(envelope, grant.messageId);
  }

  /**
   * Puts jobs aside that cost more than all there is, in transactions of their own: nobody waits for those, and what
   * they have done stays done where the asker goes away meanwhile.
   */
  async #park(filter: ClaimFilter, unique: boolean): Promise<void> {
    const { database, settings } = this.#context;
    await database.transaction(async (sql) => {
      const candidates = await lockCandidates(sql, filter, parkMax, unique);
      const { total } = await shareCapacity(sql, settings.capacityTotal);
      await parkJobs(sql, tooLarge(candidates, total), total);
    });
  }
}

const wantOf = (missing: Missing): Want => ('units' in missing ? 'room' : missing.barred ? 'barred' : 'jobs');

const tooLarge = (candidates: readonly Candidate[], total: number): string[] =>
  candidates.flatMap(({ jobId, costUnits }) => (costUnits > total ? jobId : []));

/** What a transaction came to: answers, though perhaps not to all; or that jobs have to be put aside first. */
type Round = { kind: 'answers'; answers: [AcquireCall, Answer][] } | { kind: 'park'; unique: boolean };

/** What a round is about. */
interface Ask {
  filter: ClaimFilter;
  settings: EngineContext['settings'];
  /** There is most likely something to be had, so that nobody has to look before anything is locked. */
  expectsMore: boolean;
}

async function answerAll(
  sql: Sql,
  ask: Ask,
  calls: readonly AcquireCall[],
  signal: AbortSignal | undefined,
): Promise<Round> {
  const found: Map<string, Answer | undefined> = await replay(sql, calls, signal);
  const names = calls.map(nameOf);
  // The same request twice in one batch is one request.
  const fresh = new Map<string, AcquireCall>();
  for (const [i, name] of names.entries()) if (!found.has(name)) fresh.set(name, calls[i] as AcquireCall);
  const dealt = await deal(sql, ask, [...fresh.values()], signal);
  if (!Array.isArray(dealt)) return dealt;
  for (const [i, name] of [...fresh.keys()].entries()) found.set(name, dealt[i]);
  const answers = calls.flatMap((call, i): [AcquireCall, Answer][] => {
    const answer = found.get(names[i] as string);
    return answer ? [[call, answer]] : [];
  });
  return { kind: 'answers', answers };
}

/** What tells a call of a batch from the others; a call without a request is like no other. */
const nameOf = ({ workerId, requestId }: Omit<AcquireCall, 'isCalled'>, i: number): string =>
  requestId === null ? `#${i}` : JSON.stringify([workerId, requestId]);

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

/** What the same worker was granted under the same request before and still holds is the answer again. */
async function replay(
  sql: Sql,
  calls: readonly AcquireCall[],
  signal: AbortSignal | undefined,
): Promise<Map<string, Answer | undefined>> {
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

type Park = Extract<Round, { kind: 'park' }>;

/** Deals what the queue and the capacity allow, and carries it out. Whoever has no answer yet is asked for again. */
async function deal(
  sql: Sql,
  ask: Ask,
  calls: readonly AcquireCall[],
  signal: AbortSignal | undefined,
): Promise<(Answer | undefined)[] | Park> {
  const { filter, settings } = ask;
  if (calls.length === 0) return [];
  const workers = calls.map(({ workerId }) => workerId);
  const judged = await judge(sql, ask, workers, signal);
  if (judged.kind === 'park') return judged;
  const leases = judged.dealt.flatMap((one, i) =>
    one?.kind === 'grant'
      ? {
          jobId: one.jobId,
          leaseId: newId(),
          token: randomUUID(),
          workerId: workers[i] as string,
          requestId: calls[i]?.requestId ?? null,
          state: transition(filter.streams === null ? 'acquire' : 'acquire from stream').to,
          ttlS: settings.leaseTtlS,
        }
      : [],
  );
  const granted = await grantLeases(sql, leases, 'QUEUED', settings.heartbeatGraceS);
  return judged.dealt.map((one): Answer | undefined => {
    if (one === undefined) {
      if (judged.isCut) return undefined;
      return { kind: 'denied', reason: noJobs, missing: { jobs: 1, barred: judged.hasUnique } };
    }
    if (one.kind === 'deny') return { kind: 'denied', reason: one.reason, missing: { units: one.missing } };
    const record = granted.get(one.jobId);
    if (!record) throw new Error(`job ${one.jobId} was locked and could not be leased`);
    return grantOf(record);
  });
}

/**
 * `isCut`: there are more jobs, but these are as much as one round may hold. `hasUnique`: some of them are not for a
 * worker that holds a lease.
 */
type Judged = { kind: 'dealt'; dealt: Dealt[]; isCut: boolean; hasUnique: boolean } | Park;

/**
 * Locks the capacity, then the next jobs, and decides. All who deal meet at the capacity, so that whoever comes next sees
 * the same job at the head of the queue, and a large one is not passed over because somebody else is just looking at
 * it. Rows that others have are passed over and never waited for. Where it is likely that there is
 * neither room nor a job, that is looked at first, and nothing is locked.
 */
async function judge(
  sql: Sql,
  { filter, settings, expectsMore }: Ask,
  workers: readonly string[],
  signal: AbortSignal | undefined,
): Promise<Judged> {
  if (!expectsMore) {
    const before = capacityOf({ ...(await readCapacity(sql, settings.capacityTotal, signal)), reserved: 0 });
    if (before.available <= 0) return all(dealJobs([], workers, new Set(), before));
    if (!(await anyCandidate(sql, filter, signal))) return all(workers.map(() => undefined));
  }
  const facts = await lockCapacity(sql, settings.capacityTotal, signal);
  const capacity = capacityOf({ ...facts, reserved: 0 });
  const found = await lockCandidates(sql, filter, workers.length, true, signal);
  if (tooLarge(found, facts.total).length > 0) return { kind: 'park', unique: true };
  const candidates = upToAFrame(found);
  const hasUnique = candidates.some(({ isUnique }) => isUnique);
  const holders = hasUnique ? await holdersAmong(sql, workers) : new Set<string>();
  const dealt = dealJobs(candidates, workers, holders, capacity);
  const taken = takenBy(dealt);
  const hidesOthers = candidates.some(({ jobId, isUnique }) => isUnique && !taken.has(jobId));
  // Whoever is left over asks again; but only where this round came to something, or they would ask for ever.
  const isCut = candidates.length < found.length && dealt.some((one) => one !== undefined);
  if (isCut || !hidesOthers || dealt.every((one) => one !== undefined))
    return { kind: 'dealt', dealt, isCut, hasUnique };
  return dealCommon(sql, filter, workers, { dealt, candidates, capacity }, signal);
}

const all = (dealt: Dealt[], hasUnique = false): Judged => ({
  kind: 'dealt',
  dealt,
  isCut: false,
  hasUnique,
});

const takenBy = (dealt: readonly Dealt[]): Set<string> =>
  new Set(dealt.flatMap((one) => (one?.kind === 'grant' ? one.jobId : [])));

/** As many jobs as may be read and sent together, and one in any case. */
function upToAFrame(candidates: readonly LockedCandidate[]): readonly LockedCandidate[] {
  let bytes = 0;
  const end = candidates.findIndex((candidate, i) => {
    bytes += candidate.bytes;
    return i > 0 && bytes > limits.frameBytes;
  });
  return end < 0 ? candidates : candidates.slice(0, end);
}

/** Unique jobs may hide others from workers that may not have them: those look again, for jobs that anybody may have. */
async function dealCommon(
  sql: Sql,
  filter: ClaimFilter,
  workers: readonly string[],
  first: { dealt: Dealt[]; candidates: readonly Candidate[]; capacity: Capacity },
  signal: AbortSignal | undefined,
): Promise<Judged> {
  const { dealt, candidates, capacity } = first;
  const taken = takenBy(dealt);
  const units = candidates.reduce(
    (sum, { jobId, costUnits }) => (taken.has(jobId) ? sum + costUnits : sum),
    0,
  );
  const open = workers.filter((_, i) => dealt[i] === undefined);
  const found = await lockCandidates(sql, filter, open.length + taken.size, false, signal);
  if (tooLarge(found, capacity.total).length > 0) return { kind: 'park', unique: false };
  const common = upToAFrame(found);
  const rest = { ...capacity, used: capacity.used + units, available: capacity.available - units };
  const left = common.filter(({ jobId }) => !taken.has(jobId));
  const more = dealJobs(left, open, new Set(), rest);
  const isCut = common.length < found.length && more.some((one) => one !== undefined);
  return { kind: 'dealt', dealt: dealt.map((one) => one ?? more.shift()), isCut, hasUnique: true };
}

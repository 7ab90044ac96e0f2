/**
 * Keeps leases.
 *
 * Promises: a verdict of 'extended' is given only after the commit that made it true; a lease that has run out, that is
 * somebody else's, or that is over, is never extended, whoever had its row locked meanwhile. Signs of life from all
 * callers and streams share batches. A row that somebody has locked holds up nobody but its own lease: its signs of
 * life leave the batch and wait by themselves.
 *
 * After an outage nothing is judged before the leases have been given back what they lost by it; see `engine/maintenance/outage-monitor.ts`.
 */
import { leaseNotFound } from '../../domain/errors.ts';
import type { Beat, Extended, Lost, Verdict } from '../../domain/leases/lease.ts';
import {
  checkProof,
  expired,
  lostError,
  released,
  wrongToken,
  wrongWorker,
} from '../../domain/leases/lease-policy.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { deal } from '../../lib/split-by-length.ts';
import { isUuid } from '../../lib/uuid.ts';
import { type Extension, extendLeases } from '../../store/sql/leases/extend.ts';
import { type KnownLease, readLeases } from '../../store/sql/leases/read.ts';
import type { Counter } from '../../telemetry/registry.ts';
import { type Caller, type EngineContext, heldBatches, waitingMax } from '../context/engine-context.ts';

/** Signs of life of one statement at the most. */
const beatsMax = 2_000;
/** While statements wait for the disk, another is worked on. */
const beatFlights = 3;
/** Those that are worth a statement beside the ones in flight. */
const companionBeats = 500;

type Beats = readonly Beat[];
/** What a batch says to one sign of life; of `held` rows it cannot say anything yet. */
type Judged = Verdict | 'held';

export class Heartbeats {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<Beats, readonly Judged[]>;
  readonly #held: Batcher<Beat, Verdict>;
  readonly #counts: { extended: Counter; lost: Counter };
  /** The server is about to stop; workers are told so. */
  draining = false;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#counts = context.metrics.heartbeats('leases');
    this.#batcher = new Batcher<Beats, readonly Judged[]>({
      meter: context.metrics.batch('heartbeat'),
      flush: (calls, signal) => this.#flush(calls, signal),
      sizeMax: beatsMax,
      flightsMax: beatFlights,
      companionWeight: companionBeats,
      weigh: (beats) => beats.length,
      weightMax: beatsMax,
      waitingMax,
    });
    this.#held = new Batcher<Beat, Verdict>({
      meter: context.metrics.batch('heartbeat_held'),
      flush: async (beats, signal) => (await this.#extend(beats, true, signal)) as Verdict[],
      ...heldBatches,
    });
  }

  /** Keeps one lease, or throws the DomainError that says why not. */
  async beat(beat: Beat, { peer, signal }: Caller): Promise<Extended> {
    const { leaseId: lease_id, jobId: job_id, workerId: worker_id } = beat;
    this.#context.metrics.noteIds({ lease_id, job_id, worker_id });
    if (!isUuid(beat.leaseId)) throw leaseNotFound(beat.leaseId);
    const leaseId = beat.leaseId.toLowerCase();
    const [verdict] = await this.beatAll([{ ...beat, leaseId }], signal);
    if (verdict?.kind === 'extended') {
      this.#context.workers.heard(beat.workerId, peer);
      return verdict;
    }
    throw verdict ? lostError(verdict) : new Error('a heartbeat got no verdict');
  }

  /**
   * Keeps many leases, named by their ids in lower case: a verdict for each, in the order given. Rejects only where the
   * database fails.
   */
  async beatAll(beats: Beats, signal?: AbortSignal): Promise<readonly Verdict[]> {
    return Promise.all(await this.beatEach(beats, signal));
  }

  /** The same for those who need not have all verdicts at once: some may come later than the others. */
  async beatEach(beats: Beats, signal?: AbortSignal): Promise<readonly (Verdict | Promise<Verdict>)[]> {
    if (beats.length === 0) return [];
    const judged = await this.#batcher.run(beats, signal);
    return judged.map((verdict, i) => {
      if (verdict !== 'held') return verdict;
      const late = this.#held.run(beats[i] as Beat, signal);
      // Whoever has gone meanwhile does not wait for it any more.
      late.catch(() => {});
      return late;
    });
  }

  /** How leases stand, changing nothing: for verdicts that nobody asked for. */
  async look(leaseIds: readonly string[], signal?: AbortSignal): Promise<readonly Verdict[]> {
    const found = await readLeases(this.#context.database, leaseIds, signal);
    return leaseIds.map((leaseId) => verdictOn(leaseId, found.get(leaseId)));
  }

  async close(): Promise<void> {
    await this.#batcher.close();
    await this.#held.close();
  }

  async #flush(calls: readonly Beats[], signal: AbortSignal | undefined): Promise<(readonly Judged[])[]> {
    const beats = calls.length === 1 ? (calls[0] as Beats) : calls.flat();
    const verdicts = await this.#extend(beats, false, signal);
    if (calls.length === 1) return [verdicts];
    return deal(
      verdicts,
      calls.map(({ length }) => length),
    );
  }

  async #extend(beats: Beats, wait: boolean, signal: AbortSignal | undefined): Promise<Judged[]> {
    const { database, pulse, waker } = this.#context;
    // Who waits may have been told that the lease is over; whether that may be said is asked of the database.
    await (wait ? pulse.runOnce() : pulse.fresh());
    const extensions = sayAlike(beats.map(extensionOf));
    const { nowMs, results, changedJobs } = await extendLeases(database, extensions, { wait, signal });
    const verdicts = new Array<Judged>(beats.length);
    const unclear: number[] = [];
    let strangers = 0;
    for (let i = 0; i < beats.length; i++) {
      const result = results[i];
      if (result?.kind === 'extended') {
        const { ttlRemainingMs, cancelRequested } = result;
        verdicts[i] = {
          kind: 'extended',
          expiresAtMs: nowMs + ttlRemainingMs,
          ttlRemainingMs,
          cancelRequested,
        };
      } else if (result?.kind === 'wrong worker' || result?.kind === 'wrong token') {
        verdicts[i] = result.kind === 'wrong worker' ? wrongWorker : wrongToken;
        strangers++;
      } else unclear.push(i);
    }
    if (unclear.length > 0)
      await this.#explain(beats, answerTwins(beats, unclear, verdicts), wait, verdicts, signal);
    this.#count(verdicts, unclear, strangers);
    if (changedJobs.length > 0) waker.publishJobs(changedJobs);
    return verdicts;
  }

  /** Those that were clear at once are not looked at again; what is held is counted when it has a verdict. */
  #count(verdicts: readonly Judged[], unclear: readonly number[], strangers: number): void {
    const { extended, lost } = this.#counts;
    extended.add(verdicts.length - unclear.length - strangers);
    lost.add(strangers);
    for (const i of unclear) {
      const verdict = verdicts[i] as Judged;
      if (verdict !== 'held') this.#counts[verdict.kind].add();
    }
  }

  /** Leases that could not be extended: over, unknown, or locked by somebody who will be done soon. */
  async #explain(
    beats: Beats,
    unclear: readonly number[],
    waited: boolean,
    verdicts: Judged[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const ids = unclear.map((i) => (beats[i] as Beat).leaseId);
    const found = await readLeases(this.#context.database, ids, signal);
    for (const i of unclear) {
      const beat = beats[i] as Beat;
      const known = found.get(beat.leaseId);
      // It is locked by somebody, or it has expired and nobody has seen to that yet: both are looked at once more.
      const mayHold = known?.lease.state === 'ACTIVE' && strangerTo(beat, known) === undefined;
      verdicts[i] = mayHold && !waited ? 'held' : whyLost(beat, known);
    }
  }
}

/** A lease that was named twice in a batch is answered once; the same answer holds for the other. Leaves the rest. */
function answerTwins(beats: Beats, unclear: readonly number[], verdicts: Judged[]): number[] {
  const answered = new Map<string, Verdict>();
  for (const [i, { leaseId }] of beats.entries()) {
    const verdict = verdicts[i];
    if (typeof verdict === 'object' && verdict.kind === 'extended') answered.set(leaseId, verdict);
  }
  return unclear.filter((i) => {
    const verdict = answered.get((beats[i] as Beat).leaseId);
    if (verdict) verdicts[i] = verdict;
    return verdict === undefined;
  });
}

/**
 * A statement writes a row once, so all that name a lease with the same proofs are made to say the same: the last that any
 * of them said.
 */
function sayAlike(extensions: Extension[]): readonly Extension[] {
  if (extensions.every(({ progress, message }) => progress === null && message === null)) return extensions;
  const said = new Map<string, Pick<Extension, 'progress' | 'message'>>();
  const nameOf = ({ leaseId, workerId, token, jobId }: Extension) =>
    JSON.stringify([leaseId, workerId, token, jobId]);
  const names = extensions.map(nameOf);
  for (const [i, { progress, message }] of extensions.entries()) {
    const before = said.get(names[i] as string);
    said.set(names[i] as string, {
      progress: progress ?? before?.progress ?? null,
      message: message ?? before?.message ?? null,
    });
  }
  return extensions.map((extension, i) => ({ ...extension, ...said.get(names[i] as string) }));
}

const extensionOf = ({ leaseId, workerId, token, jobId, progress, message }: Beat): Extension => ({
  leaseId,
  workerId,
  token: token === undefined ? null : token.toLowerCase(),
  jobId: jobId === undefined ? null : jobId.toLowerCase(),
  progress: progress ?? null,
  message: message ?? null,
});

/** Who it belonged to comes first: a stranger learns nothing of it. */
const whyLost = (beat: Beat, known: KnownLease | undefined): Lost =>
  known ? (strangerTo(beat, known) ?? overOf(known)) : unknown(beat.leaseId);

const strangerTo = (beat: Beat, { lease, token }: KnownLease): Lost | undefined =>
  checkProof(
    { jobId: lease.jobId, claimedBy: lease.workerId, leaseToken: token },
    { workerId: beat.workerId, token: beat.token ?? null, jobId: beat.jobId ?? null },
  );

const unknown = (leaseId: string): Lost => ({
  kind: 'lost',
  code: 'lease_not_found',
  detail: leaseNotFound(leaseId).detail,
});

const overOf = ({ lease: { leaseId, state, endedAtMs, expiresAtMs } }: KnownLease): Lost =>
  state === 'RELEASED' && endedAtMs !== null ? released(leaseId, endedAtMs) : expired(leaseId, expiresAtMs);

function verdictOn(leaseId: string, known: KnownLease | undefined): Verdict {
  if (!known) return unknown(leaseId);
  const { lease, ttlRemainingMs, cancelRequested } = known;
  if (lease.state !== 'ACTIVE' || ttlRemainingMs <= 0) return overOf(known);
  return { kind: 'extended', expiresAtMs: lease.expiresAtMs, ttlRemainingMs, cancelRequested };
}

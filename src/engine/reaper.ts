/**
 * Looks at every live row whose time has come: gives jobs back whose claim is over, and makes jobs ready whose
 * backoff or start time is over.
 *
 * Promises: what is due is handled once, whichever server gets to it, because rows are locked and looked at again and
 * rows that another server has are passed over. It sleeps until the nearest deadline it knows of, and never longer
 * than `sleepMaxMs`: since no claim or lease is shorter than a second, that is soon enough to learn of every deadline
 * that other servers set. `expectIn` tells it of one that this server set.
 *
 * Modes: asleep, or in a round. A round handles batches until nothing is due. One that fails is logged and tried
 * again after `sleepMaxMs`. `stop` lets a round finish its batch.
 */
import { decideDue } from '../domain/claims.ts';
import { type State, transition } from '../domain/machine.ts';
import type { Log } from '../log.ts';
import type { Database } from '../store/database.ts';
import type { Sql } from '../store/sql.ts';
import {
  changeLiveJobs,
  type Ending,
  endJobs,
  type LiveChange,
  type LockedJob,
  lockDueJobs,
  type NewEvent,
  nextDueInMs,
  writeEvents,
} from '../store/statements/change-jobs.ts';
import type { Service } from './service.ts';
import type { Waker } from './waker.ts';

/** Rows of one transaction at the most: it should not hold its locks for long. */
const batchMax = 500;
const sleepMaxMs = 500;
const heldPauseMs = 5;

export interface ReaperOptions {
  database: Database;
  waker: Waker;
  maxClaims: number;
  log: Log;
}

export class Reaper implements Service {
  readonly #options: ReaperOptions;
  #timer: NodeJS.Timeout | undefined;
  /** When the timer will fire, by `performance.now()`. */
  #wakeAt = Number.POSITIVE_INFINITY;
  #round: Promise<number> | undefined;
  #running = false;

  constructor(options: ReaperOptions) {
    this.#options = options;
  }

  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#sleep(0);
  }

  async stop(): Promise<void> {
    this.#running = false;
    clearTimeout(this.#timer);
    this.#wakeAt = Number.POSITIVE_INFINITY;
    await this.#round?.catch(() => {});
  }

  /** This server has set a deadline so many milliseconds from now. */
  expectIn(ms: number): void {
    if (this.#running && this.#round === undefined) this.#sleep(ms);
  }

  /** Handles what is due now and says how many rows that were. */
  async runOnce(): Promise<number> {
    let handled = 0;
    for (;;) {
      const batch = await this.#options.database.transaction((sql) => this.#handleBatch(sql));
      handled += batch.length;
      this.#options.waker.publishJobs(batch);
      if (batch.length < batchMax) return handled;
    }
  }

  async #wake(): Promise<void> {
    this.#wakeAt = Number.POSITIVE_INFINITY;
    let pauseMs = sleepMaxMs;
    try {
      this.#round = this.runOnce();
      await this.#round;
      // What is due still is held by somebody else, who will be done soon.
      pauseMs = Math.max((await nextDueInMs(this.#options.database)) ?? sleepMaxMs, heldPauseMs);
    } catch (error) {
      if (this.#running) this.#options.log.warn('the reaper could not finish its round', { error });
    } finally {
      this.#round = undefined;
    }
    if (this.#running) this.#sleep(pauseMs);
  }

  #sleep(ms: number): void {
    const pauseMs = Math.min(Math.max(ms, 1), sleepMaxMs);
    const wakeAt = performance.now() + pauseMs;
    if (wakeAt >= this.#wakeAt) return;
    this.#wakeAt = wakeAt;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#wake(), pauseMs);
  }

  async #handleBatch(sql: Sql): Promise<string[]> {
    const due = await lockDueJobs(sql, batchMax);
    const changes: LiveChange[] = [];
    const endings: Ending[] = [];
    const events: NewEvent[] = [];
    for (const job of due) {
      const decision = decideDue(job, this.#options.maxClaims);
      if (decision.kind === 'nothing') continue;
      if (decision.kind === 'make ready') {
        changes.push({ jobId: job.jobId, state: 'QUEUED', unclaim: true });
        continue;
      }
      const { claimsLost } = decision;
      const { jobId, state } = job;
      if (decision.kind === 'lose claim') {
        changes.push({ jobId, state: 'QUEUED', unclaim: true, claimsLost });
        events.push(claimExpired(job, 'QUEUED', claimsLost));
      } else {
        const reason = `${claimsLost} claims in a row ran out before the job was leased`;
        endings.push({ jobId, state: 'FAILED', error: reason });
        const { event: type, to } = transition('exhaust claims');
        events.push(claimExpired(job, state, claimsLost), {
          jobId,
          type,
          from: state,
          to,
          actor,
          data: { reason },
        });
      }
    }
    await changeLiveJobs(sql, changes);
    await endJobs(sql, endings);
    await writeEvents(sql, events);
    return [...changes, ...endings].map(({ jobId }) => jobId);
  }
}

const actor = 'reaper';

const claimExpired = (job: LockedJob, to: State, claimsLost: number): NewEvent => ({
  jobId: job.jobId,
  type: transition('lose claim').event,
  from: job.state,
  to,
  actor,
  data: {
    reason: 'the claim ran out',
    worker_id: job.claimedBy,
    claim_expires_at: job.claimExpiresAtMs === null ? null : new Date(job.claimExpiresAtMs).toISOString(),
    claims_lost: claimsLost,
  },
});

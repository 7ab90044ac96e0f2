/**
 * Handles every live row whose deadline has passed: expires leases that were not renewed, requeues jobs whose
 * claim has expired, and makes jobs ready whose backoff or start time has passed.
 *
 * Guarantees:
 * - A due row is handled once, by whichever server locks it first. The server decides after it has locked the
 *   row, and skips rows that another server has locked.
 * - The reaper sleeps until the nearest deadline it knows, at most `sleepMaxMs`. Claims and leases last at
 *   least a second, so that is soon enough for deadlines that other servers set. `expectIn` reports a
 *   deadline that this server set.
 * - After an outage nothing expires before claims and leases have been compensated; see `outage-monitor.ts`.
 *
 * Lifecycle: asleep, or in a round. A round handles batches until nothing is due. `stop` waits for the
 * current batch.
 *
 * Failure modes: a round that fails is logged and tried again after `sleepMaxMs`.
 */
import { type DueDecision, decideDue } from '../../domain/jobs/claim-policy.ts';
import { isLeased, type State, transition } from '../../domain/jobs/state-machine.ts';
import { iso } from '../../domain/time.ts';
import type { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Sql } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { type NewEvent, writeEvents } from '../../store/sql/events/write.ts';
import { type LockedJob, lockDueJobs, readNextDue } from '../../store/sql/jobs/lock.ts';
import { changeLiveJobs, type Ending, endJobs, type LiveChange } from '../../store/sql/jobs/update.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { ReapMeter } from '../../telemetry/service-metrics.ts';
import type { Transport } from '../../transport/transport.ts';
import type { CommitEffects } from '../context/commit-effects.ts';
import type { CommitPublisher } from '../context/commit-publisher.ts';
import { LeaseEndings } from '../dispatch/lease-endings.ts';
import type { LeaseSubscriptions } from '../leases/lease-subscriptions.ts';
import type { DeadlineCursor } from './deadline-cursor.ts';
import { deadlineTask } from './deadline-task.ts';
import type { OutageMonitor } from './outage-monitor.ts';

/** Maximum rows of one transaction, which should not hold its locks for long. */
const batchMax = 500;
const sleepMaxMs = 500;

export interface ReaperOptions {
  database: Database;
  publisher: CommitPublisher;
  outageMonitor: OutageMonitor;
  deadlineCursor: DeadlineCursor;
  transport: Pick<Transport, 'keepsMessages'>;
  leaseSubscriptions: LeaseSubscriptions;
  maxClaims: number;
  metrics: Metrics;
  log: Log;
}

export class LeaseReaper implements Service {
  readonly #options: ReaperOptions;
  readonly #rounds: PeriodicTask;
  readonly #meters: Readonly<Record<Due, ReapMeter>>;

  constructor(options: ReaperOptions) {
    this.#options = options;
    const { database, deadlineCursor, metrics, log } = options;
    this.#rounds = deadlineTask({
      findDue: () => deadlineCursor.cursorFor((fromMs) => readNextDue(database, fromMs)),
      handle: () => this.runOnce(deadlineCursor.fromMs),
      meter: metrics.round('reaper'),
      onFailed: (error) => log.warn('the reaper could not finish its round', { error }),
      sleepMaxMs,
    });
    this.#meters = {
      expire: metrics.reaped('jobs', 'lease_expired'),
      'lose claim': metrics.reaped('jobs', 'claim_lost'),
      'exhaust claims': metrics.reaped('jobs', 'claims_exhausted'),
      'make ready': metrics.reaped('jobs', 'job_ready'),
    };
  }

  start(): void {
    this.#rounds.start();
  }

  stop(): Promise<void> {
    return this.#rounds.stop();
  }

  /** This server has set a deadline this many milliseconds from now. */
  expectIn(ms: number): void {
    this.#rounds.wakeIn(ms);
  }

  /** Handles all rows that are due, except those due before `fromMs`, and returns how many. */
  async runOnce(fromMs?: number): Promise<number> {
    const { database, publisher, outageMonitor } = this.#options;
    await outageMonitor.ensureFresh();
    for (let handled = 0; ; ) {
      const { looked, asleep, late, effects } = await database.transaction((sql) =>
        this.#handleBatch(sql, fromMs),
      );
      publisher.publish(effects);
      for (const { kind, ms } of late) this.#meters[kind].handled(ms);
      if (asleep) await outageMonitor.runOnce();
      handled += late.length;
      if (looked < batchMax && !asleep) return handled;
    }
  }

  async #handleBatch(sql: Sql, fromMs: number | undefined): Promise<Handled> {
    const { renewed, due } = await lockDueJobs(sql, batchMax, fromMs);
    const changes: LiveChange[] = [];
    const endings: Ending[] = [];
    const events: NewEvent[] = [];
    const over: LockedJob[] = [];
    const ready: (string | null)[] = [];
    const late: Handled['late'] = [];
    let asleep = false;
    for (const job of due) {
      const decision = decideDue(job, this.#options.maxClaims);
      const { jobId, state } = job;
      if (decision.kind === 'nothing') continue;
      if (!job.awake && decision.kind !== 'make ready') {
        asleep = true;
        continue;
      }
      late.push({ kind: decision.kind, ms: lateMs(job) });
      if (decision.kind === 'expire') over.push(job);
      else if (decision.kind === 'make ready') {
        changes.push({ jobId, state: 'QUEUED', unclaim: true });
        ready.push(job.stream);
      } else if (decision.kind === 'lose claim') {
        const { claimsLost } = decision;
        changes.push({ jobId, state: 'QUEUED', unclaim: true, claimsLost });
        ready.push(job.stream);
        events.push(claimExpired(job, 'QUEUED', claimsLost));
      } else {
        const { claimsLost } = decision;
        const reason = `${claimsLost} claims in a row ran out before the job was leased`;
        const { event: type, to } = transition('exhaust claims');
        endings.push({ jobId, state: to, error: reason });
        events.push(claimExpired(job, state, claimsLost));
        events.push({ jobId, type, from: state, to, actor, data: { reason } });
      }
    }
    await changeLiveJobs(sql, changes);
    await endJobs(sql, endings);
    await writeEvents(sql, events);
    const ends = new LeaseEndings(this.#options);
    for (const job of over)
      ends.addExpired(job, actor, this.#options.leaseSubscriptions.lastDisconnectOf(job.leaseId));
    await ends.write(sql);
    for (const { state } of endings) ends.counts.ended(state);
    const { effects } = ends;
    return {
      looked: renewed + due.length,
      asleep,
      late,
      effects: {
        ...effects,
        jobsChanged: [...changes, ...endings, ...over].map(({ jobId }) => jobId),
        jobsReady: [...ready, ...effects.jobsReady],
        leasesChanged: over.flatMap(({ leaseId }) => leaseId ?? []),
      },
    };
  }
}

/** The result of a batch. */
interface Handled {
  /** Rows that were due, renewed leases included. */
  looked: number;
  /** Some claims or leases may not be decided before the outage monitor has run again. */
  asleep: boolean;
  /** The kind of each due row, and how late it was handled. */
  late: { kind: Due; ms: number }[];
  effects: CommitEffects;
}

type Due = Exclude<DueDecision['kind'], 'nothing'>;

/** The lease's own expiry counts, because its row becomes due for a check earlier. */
function lateMs({ state, expiresAtMs, claimExpiresAtMs, checkAtMs, nowMs }: LockedJob): number {
  const dueAtMs = isLeased(state) ? expiresAtMs : state === 'QUEUED' ? checkAtMs : claimExpiresAtMs;
  return dueAtMs === null ? 0 : nowMs - dueAtMs;
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
    claim_expires_at: iso(job.claimExpiresAtMs),
    claims_lost: claimsLost,
  },
});

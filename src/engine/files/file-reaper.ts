/**
 * Handles every file owner whose deadline has passed: reclaims the files of dead owners, releases those of
 * owners that have stopped and stayed idle, announces due retries, and lets contentions lapse whose retry was
 * not used.
 *
 * Guarantees:
 * - A due owner is handled once, by whichever server locks it first. The server decides after it has locked
 *   the owner, and skips owners that another server has locked.
 * - The reaper sleeps until the nearest deadline, at most `sleepMaxMs`, so a dead owner loses its files
 *   within a second.
 * - After an outage no owner is declared dead or idle before the outage has been compensated; see
 *   `engine/maintenance/outage-monitor.ts`.
 * - A request for a file whose holder seems dead does not wait for the next round: `reap` handles named
 *   owners at once. Concurrent calls share a batch.
 *
 * Lifecycle: asleep, or in a round. `stop` waits for the current batch.
 *
 * Failure modes: a round that fails is logged and tried again.
 */
import { retryMs, unusedMs } from '../../domain/files/contention-policy.ts';
import { livenessOf, type Owner } from '../../domain/files/file-owners.ts';
import { iso } from '../../domain/time.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import type { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Sql } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { type ContendedFile, contentionsOfOwners, markDue } from '../../store/sql/files/contentions.ts';
import {
  type Clock,
  lockDueOwners,
  lockOwners,
  nextFileDueInMs,
  readClock,
  rearmOwners,
  restOwners,
} from '../../store/sql/files/owners.ts';
import { countFiles, filesOfOwners, type HeldFile } from '../../store/sql/files/rows.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { ReapMeter } from '../../telemetry/service-metrics.ts';
import type { CommitPublisher } from '../context/commit-publisher.ts';
import { waitingMax } from '../context/engine-context.ts';
import { deadlineTask } from '../maintenance/deadline-task.ts';
import type { OutageMonitor } from '../maintenance/outage-monitor.ts';
import { FileChangeset, type OwnerEnd } from './file-changeset.ts';
import { giveUp, lendersBeside } from './file-returns.ts';

/**
 * Maximum owners of one transaction, and files that they give up; an owner with more files is handled alone.
 */
const batchMax = 100;
const filesMax = 10_000;
/** A dead owner loses its files within a second, even if a clock was set meanwhile. */
const sleepMaxMs = 700;

const actor = 'reaper';

export interface FileReaperOptions {
  database: Database;
  publisher: CommitPublisher;
  outageMonitor: OutageMonitor;
  metrics: Metrics;
  log: Log;
}

export class FileReaper implements Service {
  readonly #options: FileReaperOptions;
  readonly #rounds: PeriodicTask;
  readonly #meters: Readonly<Record<Due, ReapMeter>>;
  readonly #reaps: Batcher<string, void>;

  constructor(options: FileReaperOptions) {
    this.#options = options;
    const { database, metrics, log } = options;
    this.#rounds = deadlineTask({
      findDue: () => nextFileDueInMs(database),
      handle: () => this.runOnce(),
      meter: metrics.round('file_reaper'),
      onFailed: (error) => log.warn('the reaper of file leases could not finish its round', { error }),
      sleepMaxMs,
    });
    this.#meters = {
      dead: metrics.reaped('files', 'owner_dead'),
      idle: metrics.reaped('files', 'owner_idle'),
      lapse: metrics.reaped('files', 'contention_lapsed'),
      retry: metrics.reaped('files', 'retry_due'),
    };
    this.#reaps = new Batcher<string, void>({
      meter: metrics.batch('reap_owners'),
      flush: async (ownerIds) => {
        await this.#reap([...new Set(ownerIds)]);
        return ownerIds.map(() => undefined);
      },
      sizeMax: batchMax,
      waitingMax,
    });
  }

  start(): void {
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.#reaps.close();
  }

  /** Handles these owners now, and waits for those that another transaction has locked. */
  async reap(ownerIds: Iterable<string>, signal?: AbortSignal): Promise<void> {
    await Promise.all([...ownerIds].map((ownerId) => this.#reaps.run(ownerId, signal)));
  }

  /** Handles what is due now, and returns how many owners were handled. */
  async runOnce(): Promise<number> {
    const { outageMonitor } = this.#options;
    await outageMonitor.ensureFresh();
    for (let handled = 0; ; ) {
      const { looked, left, borrowers, asleep } = await this.#handle((sql) => lockDueOwners(sql, batchMax));
      if (asleep) await outageMonitor.runOnce();
      else if (borrowers.length > 0) await this.#reap(borrowers);
      handled += looked - left.length;
      if (looked < batchMax && left.length === 0 && !asleep) return handled;
    }
  }

  async #reap(ownerIds: readonly string[]): Promise<void> {
    const { outageMonitor } = this.#options;
    await outageMonitor.ensureFresh();
    let mayBeAsleep = true;
    for (let names = ownerIds; names.length > 0; ) {
      const lock = (sql: Sql) => lockOwners(sql, names, { wait: true });
      const { left, borrowers, asleep } = await this.#handle(lock, names);
      if (asleep && mayBeAsleep) {
        mayBeAsleep = false;
        await outageMonitor.runOnce();
      } else names = [...new Set([...left, ...borrowers])];
    }
  }

  async #handle(
    lock: (sql: Sql) => Promise<Map<string, Owner>>,
    named: readonly string[] = [],
  ): Promise<{ looked: number; left: string[]; borrowers: string[]; asleep: boolean }> {
    const { database, publisher } = this.#options;
    const { effects, late, ...handled } = await database.transaction(async (sql) => {
      const owners = await lock(sql);
      const clock = await readClock(sql);
      const looked = owners.size;
      const left = clock.awake ? await leaveOut(sql, owners, clock) : [];
      const files = clock.awake ? await filesOfOwners(sql, givingUp(owners, clock)) : [];
      const borrowers = leaveOutBorrowers(owners, files, named);
      const { ledger, asleep, late } = await handleOwners(sql, owners, files, clock);
      return { looked, left, borrowers, asleep, effects: ledger.effects, late };
    });
    publisher.publish(effects);
    for (const { kind, ms } of late) this.#meters[kind].handled(ms);
    return handled;
  }
}

/** Removes locked owners that have more files to give up than fit, and returns their names. */
async function leaveOut(sql: Sql, owners: Map<string, Owner>, clock: Clock): Promise<string[]> {
  const names = givingUp(owners, clock);
  const counts = await countFiles(sql, names, filesMax + 1);
  const left: string[] = [];
  let files = 0;
  for (const [i, name] of names.entries()) {
    files += counts.get(name) ?? 0;
    if (files <= filesMax || i === 0) continue;
    owners.delete(name);
    left.push(name);
  }
  return left;
}

/** The dead owners, and those that have stopped and stayed idle. */
const givingUp = (owners: ReadonlyMap<string, Owner>, { nowMs }: Clock): string[] =>
  [...owners.values()]
    .filter((owner) => ['dead', 'idle'].includes(livenessOf(owner, nowMs)))
    .map(({ ownerId }) => ownerId);

/**
 * Removes locked owners that borrowed a file from an owner that is not locked, and returns both names. The
 * lender's name may come before the borrower's in the lock order, so it cannot be locked now. All of them
 * must be locked together.
 */
function leaveOutBorrowers(
  owners: Map<string, Owner>,
  files: readonly HeldFile[],
  named: readonly string[],
): string[] {
  const locked = new Set([...owners.keys(), ...named]);
  const out = new Set<string>();
  for (const file of files) {
    const lenders = lendersBeside([{ file }], locked);
    if (lenders.length > 0) for (const ownerId of [file.ownerId, ...file.loan.lenders]) out.add(ownerId);
  }
  for (const { ownerId } of files) if (out.has(ownerId)) owners.delete(ownerId);
  return [...out];
}

/** The kind of each deadline, and how late it was handled. */
type Due = 'dead' | 'idle' | 'lapse' | 'retry';

interface Late {
  kind: Due;
  ms: number;
}

/** Decides about locked owners and their contentions, and writes the changes. */
async function handleOwners(
  sql: Sql,
  owners: ReadonlyMap<string, Owner>,
  files: readonly HeldFile[],
  { nowMs, awake }: Clock,
): Promise<{ ledger: FileChangeset; asleep: boolean; late: Late[] }> {
  const ledger = new FileChangeset(nowMs);
  const dead = new Map<string, Owner>();
  const idle: string[] = [];
  const alive: string[] = [];
  const late: Late[] = [];
  let asleep = false;
  for (const owner of owners.values()) {
    const fate = livenessOf(owner, nowMs);
    if ((fate === 'dead' || fate === 'idle') && !awake) asleep = true;
    else if (fate === 'dead') dead.set(owner.ownerId, owner);
    else if (fate === 'idle') idle.push(owner.ownerId);
    else if (fate === 'alive') alive.push(owner.ownerId);
  }
  for (const owner of dead.values()) {
    late.push({ kind: 'dead', ms: nowMs - owner.expiresAtMs });
    const data = { last_heartbeat_at: iso(owner.lastHeartbeatAtMs), reclaimed_at: iso(nowMs) };
    ledger.endOwner(owner.ownerId, 'DEAD', { actor, data });
  }
  for (const ownerId of idle) {
    late.push({ kind: 'idle', ms: nowMs - (owners.get(ownerId)?.idleAtMs ?? nowMs) });
    ledger.addOwnerEvent('OWNER_IDLE', ownerId, { actor });
  }
  const ends = endsOf(dead, idle);
  const given = files.flatMap((file) => {
    const how = ends.get(file.ownerId);
    return how ? [{ file, how }] : [];
  });
  await giveUp(sql, ledger, given, owners);
  const due = await handleContentions(sql, owners, { ledger, late });
  await ledger.write(sql);
  await markDue(sql, due);
  await restOwners(sql, idle);
  await rearmOwners(sql, alive);
  return { ledger, asleep, late };
}

function endsOf(dead: ReadonlyMap<string, Owner>, idle: readonly string[]): Map<string, OwnerEnd> {
  const ends = new Map<string, OwnerEnd>();
  const cause = { actor };
  for (const ownerId of dead.keys())
    ends.set(ownerId, { state: 'RECLAIMED', reason: 'its owner sent no heartbeat', cause });
  for (const ownerId of idle)
    ends.set(ownerId, { state: 'RELEASED', reason: 'its owner had stopped and stayed idle', cause });
  return ends;
}

/**
 * Lets contentions lapse whose retry was not used in time, whatever became of their owners. Announces and
 * returns those whose retry is due.
 */
async function handleContentions(
  sql: Sql,
  owners: ReadonlyMap<string, Owner>,
  { ledger, late }: { ledger: FileChangeset; late: Late[] },
): Promise<ContendedFile[]> {
  const due: ContendedFile[] = [];
  for (const file of await contentionsOfOwners(sql, [...owners.keys()])) {
    const name = { contentionId: file.contentionId, ownerId: file.ownerId, file };
    if (file.state !== 'CONTENDED' || ledger.nowMs < file.retryAtMs) continue;
    else if (ledger.nowMs >= file.retryAtMs + unusedMs) {
      late.push({ kind: 'lapse', ms: ledger.nowMs - file.retryAtMs - unusedMs });
      ledger.close(name, 'lapse', { actor, data: { reason: 'its retry was not used' } });
    } else if (!file.isAnnounced) {
      ledger.addEvent('FILE_RETRY_DUE', name, actor, {
        denied_at: iso(file.deniedAtMs),
        retry_at: iso(file.deniedAtMs + retryMs),
      });
      late.push({ kind: 'retry', ms: ledger.nowMs - file.retryAtMs });
      due.push(file);
    }
  }
  return due;
}

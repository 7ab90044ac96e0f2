/**
 * Writes the workers that this server knows into the table in which all servers list theirs.
 *
 * Guarantees:
 * - No call of a worker waits for it.
 * - A row is written within `newMs` of a worker's first call, and at most every `workerRefreshMs` from then
 *   on.
 * - A row is deleted `newMs` after the worker's last stream closed, when the worker has not called for
 *   `workerGoneMs`, when this server stops, and `workerGoneMs` after this server died.
 *
 * Lifecycle: asleep for `workerRefreshMs`, or until `newMs` after a worker was added or removed; or in a
 * round. While no worker is known a round writes nothing. Every `workerGoneMs` a round removes the rows of
 * servers that died. `stop` removes the rows of this server.
 *
 * Failure modes: rounds that fail are logged once and tried again.
 */
import { hostname } from 'node:os';
import { workerGoneMs, workerRefreshMs } from '../../domain/workers/worker.ts';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import { newId } from '../../lib/uuid.ts';
import type { Database } from '../../store/database.ts';
import {
  deleteWorkers,
  removeExpiredWorkers,
  type ServerColumns,
  type WorkerWrite,
  writeWorkers,
} from '../../store/sql/workers/workers.ts';
import { asksOf, isOpen, type KnownWorker, type KnownWorkers, type StreamKind } from './known-workers.ts';

/** How soon an added or removed worker is written. */
const newMs = 1_000;
/** Slightly less than the time between two rounds, so that every round finds every row due. */
const dueMs = workerRefreshMs - 500;

export interface WorkerDirectoryOptions {
  database: Database;
  known: KnownWorkers;
  log: Log;
}

export class WorkerDirectory implements Service {
  readonly #options: WorkerDirectoryOptions;
  readonly #rounds: PeriodicTask;
  readonly #server: ServerColumns = { server_id: newId(), server_host: hostname(), server_pid: process.pid };
  /** A worker was added or removed since the last round. */
  #hasNews = false;
  #removedAt = Number.NEGATIVE_INFINITY;
  /** Consecutive failed rounds. */
  #failures = 0;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: WorkerDirectoryOptions) {
    this.#options = options;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        this.#failures = 0;
        return workerRefreshMs;
      },
      onFailed: (error) => {
        if (++this.#failures === 1) options.log.warn('failed to write the list of workers', { error });
      },
      failedMs: workerRefreshMs,
    });
    options.known.onNews = () => {
      this.#hasNews = true;
      this.#rounds.wakeIn(newMs);
    };
  }

  /** The id under which the rows of this server are written. */
  get serverId(): string {
    return this.#server.server_id;
  }

  get failures(): number {
    return this.#failures;
  }

  start(): void {
    this.#rounds.start(newMs);
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.#writing;
    const { database, known, log } = this.#options;
    known.clear();
    await deleteWorkers(database, this.serverId, 'all').catch((error: unknown) =>
      log.debug('failed to remove the rows of this server from the list of workers', { error }),
    );
  }

  /** Writes rows that are new or due, after the write in progress. */
  runOnce(): Promise<void> {
    const writing = this.#writing.then(() => this.#write());
    this.#writing = writing.catch(() => {});
    return writing;
  }

  /** Writes new rows, so that a reader of the table finds them. */
  async flush(): Promise<void> {
    if (this.#hasNews) await this.runOnce();
    else await this.#writing;
  }

  async #write(): Promise<void> {
    const { database, known } = this.#options;
    const now = known.nowMs();
    this.#hasNews = false;
    const due: KnownWorker[] = [];
    for (const worker of known.fresh(now)) if (now - worker.writtenAt >= dueMs) due.push(worker);
    const { gone } = known;
    await deleteWorkers(database, this.serverId, gone);
    known.removed(gone);
    const rows = due.map((worker) => rowOf(worker, now));
    for (const worker of due) worker.mayHaveRow = true;
    await writeWorkers(database, this.#server, rows);
    for (const worker of due) worker.writtenAt = now;
    if (now - this.#removedAt < workerGoneMs) return;
    this.#removedAt = now;
    await removeExpiredWorkers(database);
  }
}

function rowOf(known: KnownWorker, now: number): WorkerWrite {
  const heardAgoMs = Math.max(now - known.heardAt, 0);
  const { asks, asksCut } = asksOf(known, now);
  const count = (kind: StreamKind) => [...known.streams].filter((stream) => stream.kind === kind).length;
  return {
    worker_id: known.workerId,
    peer: known.peer,
    work_streams: count('WORK_STREAM'),
    heartbeat_streams: count('HEARTBEAT_STREAM'),
    waiting_calls: known.waiting,
    asks,
    asks_cut: asksCut,
    sinceAgoMs: now - known.since,
    heardAgoMs,
    lastsMs: isOpen(known) ? workerGoneMs : workerGoneMs - heardAgoMs,
  };
}

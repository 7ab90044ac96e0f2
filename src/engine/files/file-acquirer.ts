/**
 * The gate in front of files: grants them to one owner at a time, denies them with a contention, and judges its one
 * retry.
 *
 * Promises: a file is granted only where nobody else who lives holds it, decided under the locks of the owner who asks and
 * of the file, by the database's clock after both; all files of a request or none. Of requests in one batch the first
 * to come is the first to be served. What halts or waits is answered without a look at who holds what, and without
 * locking any file. A row that somebody else has locked holds up nobody but those who want it: they leave the batch,
 * and wait by themselves in small groups. Who finds a file with an owner that seems dead has it reaped first, as anybody
 * who asks does, and is judged again.
 *
 * A request for a file of the owner's parent locks the parent too, in the same order as all owners, and borrows the file. A
 * request of an owner for whom an instruction is kept has it applied first, as if it had been given at that moment.
 *
 * After an outage nobody is called dead before having been given back what it took; see `engine/maintenance/outage-monitor.ts`.
 */
import { DomainError } from '../../domain/errors.ts';
import type { FileOutcome } from '../../domain/files/file-lease.ts';
import type { FileRequest } from '../../domain/requests/files.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { addOwners } from '../../store/sql/files/owners.ts';
import {
  type Caller,
  type EngineContext,
  lockedRowBatchOptions,
  waitingMax,
} from '../context/engine-context.ts';
import { applyStoredInstruction } from './contention-resolver.ts';
import { again, FileAcquireBatch } from './file-acquire-batch.ts';
import { FileTakenError } from './file-changeset.ts';

/** Requests, and files, of one transaction at the most; one request with more files goes alone. */
const requestsMax = 250;
const filesMax = 2_000;
/** While one transaction waits for the disk, another is worked on; so many files are worth it. */
const concurrentTransactionsMax = 2;
const minFilesWhenBusy = 16;
/** How often a request is judged again because what it asks for has changed hands meanwhile. */
const attemptsMax = 20;
/** Owners that are known to have a row. */
const knownMax = 10_000;

type AcquireResult = Awaited<ReturnType<FileAcquireBatch['answers']>>[number];

export class FileAcquirer {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<FileRequest, AcquireResult>;
  readonly #lockedRowBatcher: Batcher<FileRequest, AcquireResult>;
  readonly #known = new Set<string>();

  constructor(context: EngineContext) {
    this.#context = context;
    const weigh = ({ files }: FileRequest) => files.length;
    this.#batcher = new Batcher<FileRequest, AcquireResult>({
      meter: context.metrics.batch('acquire_files'),
      flush: (calls, signal) => this.#flush(calls, false, signal),
      sizeMax: requestsMax,
      weigh,
      weightMax: filesMax,
      concurrencyMax: concurrentTransactionsMax,
      minWeightWhenBusy: minFilesWhenBusy,
      waitingMax,
    });
    this.#lockedRowBatcher = new Batcher<FileRequest, AcquireResult>({
      meter: context.metrics.batch('acquire_files_held'),
      flush: (calls, signal) => this.#flush(calls, true, signal),
      ...lockedRowBatchOptions,
      weigh,
      weightMax: filesMax,
    });
  }

  async acquire(request: FileRequest, { signal }: Caller): Promise<FileOutcome> {
    let asked = request;
    let judged = await this.#batcher.run(asked, signal);
    for (let attempt = 1; judged.kind === 'again' || judged.kind === 'apply'; attempt++) {
      if (attempt > attemptsMax)
        throw new DomainError('unavailable', 'too many want the same files; try again');
      if (judged.kind === 'apply') {
        await applyStoredInstruction(this.#context, judged.contentionId, asked.ownerId, signal);
      } else {
        await this.#context.fileReaper.reap(judged.stale, signal);
        const { parentOwnerId } = judged;
        if (parentOwnerId !== undefined) asked = { ...asked, profile: { ...asked.profile, parentOwnerId } };
      }
      judged = await this.#lockedRowBatcher.run(asked, signal);
    }
    return judged;
  }

  async close(): Promise<void> {
    await this.#batcher.close();
    await this.#lockedRowBatcher.close();
  }

  async #flush(
    calls: readonly FileRequest[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<AcquireResult[]> {
    const { database, outageMonitor, notifier } = this.#context;
    await outageMonitor.ensureFresh();
    const ownerIds = [...new Set(calls.flatMap(({ ownerId, callerId }) => [ownerId, callerId]))];
    const parentIds = calls.flatMap(({ profile }) => profile.parentOwnerId ?? []);
    const lockIds = parentIds.length === 0 ? ownerIds : [...new Set([...ownerIds, ...parentIds])];
    try {
      const { answers, hasNews } = await database.transaction(async (sql) => {
        // Whoever was not found is made sure of, known or not.
        const unknown = wait ? ownerIds : ownerIds.filter((ownerId) => !this.#known.has(ownerId));
        if (unknown.length > 0) await addOwners(sql, unknown, signal);
        const round = await FileAcquireBatch.open(sql, calls, lockIds, wait, signal);
        const judged = calls.map((call) => round.decide(call));
        await round.ledger.write(sql);
        return { answers: await round.answers(sql, calls, judged), hasNews: round.ledger.hasChanges };
      }, signal);
      this.#remember(ownerIds);
      if (hasNews) notifier.publishFiles();
      return answers;
    } catch (error) {
      // Somebody else was granted a file first. Nothing was written, and nobody is worse off for being judged again.
      if (error instanceof FileTakenError) return calls.map(() => again);
      throw error;
    }
  }

  #remember(ownerIds: readonly string[]): void {
    if (this.#known.size > knownMax) this.#known.clear();
    for (const ownerId of ownerIds) this.#known.add(ownerId);
  }
}

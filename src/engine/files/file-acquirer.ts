/**
 * Grants files to one owner at a time, denies them with a contention, and decides the contention's one retry.
 *
 * Guarantees:
 * - A file is granted only if no other living owner holds it. This is decided under the locks of the
 *   requesting owner and of the file, by the database's clock after both.
 * - A request gets all its files or none. In a batch the first request is served first.
 * - A request that is halted or waits for its retry is answered from its contention, whichever owner holds
 *   the file.
 * - A row that another transaction has locked delays only the requests for it. They leave the batch and wait
 *   by themselves in small groups.
 * - If the holder of a file seems dead, it is reaped first, and the request is decided again.
 * - After an outage no owner is declared dead before the outage has been compensated; see
 *   `engine/maintenance/outage-monitor.ts`.
 *
 * A request for a file of the owner's parent locks the parent too, in the same order as all owners, and
 * borrows the file. If an instruction is stored for the owner, its request applies the instruction first, as
 * if it had been given at that moment.
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

/** Maximum requests, and files, of one transaction; one request with more files runs alone. */
const requestsMax = 250;
const filesMax = 2_000;
/** While one transaction waits for the disk, another may run, if it has at least this many files. */
const concurrentTransactionsMax = 2;
const minFilesWhenBusy = 16;
/** How often a request is decided again because its files have changed holders meanwhile. */
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
        // After a miss, the rows of all owners are ensured, known or not.
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
      // Another transaction was granted a file first. Nothing was written, so all requests are decided again.
      if (error instanceof FileTakenError) return calls.map(() => again);
      throw error;
    }
  }

  #remember(ownerIds: readonly string[]): void {
    if (this.#known.size > knownMax) this.#known.clear();
    for (const ownerId of ownerIds) this.#known.add(ownerId);
  }
}

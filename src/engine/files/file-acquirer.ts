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
import { holderOf } from '../../domain/access/holder.ts';
import { DomainError } from '../../domain/errors.ts';
import type { FileOutcome } from '../../domain/files/file-lease.ts';
import type { FileRequest } from '../../domain/requests/files.ts';
import { LockAwareBatcher, type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import { addOwners } from '../../store/sql/files/owners.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import { applyStoredInstruction } from './contention-resolver.ts';
import { FileAcquireBatch } from './file-acquire-batch.ts';
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

type AcquireAnswer = Exclude<Awaited<ReturnType<FileAcquireBatch['answers']>>[number], RowLocked>;
type AcquireResult = Exclude<AcquireAnswer, Error>;

export class FileAcquirer {
  readonly #context: EngineContext;
  readonly #batcher: LockAwareBatcher<FileRequest, AcquireAnswer>;
  readonly #known = new Set<string>();

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new LockAwareBatcher<FileRequest, AcquireAnswer>({
      flush: (calls, wait, signal) => this.#flush(calls, wait, signal),
      first: {
        meter: context.metrics.batch('acquire_files'),
        sizeMax: requestsMax,
        weightMax: filesMax,
        concurrencyMax: concurrentTransactionsMax,
        minWeightWhenBusy: minFilesWhenBusy,
      },
      lockedMeter: context.metrics.batch('acquire_files_held'),
      weigh: ({ files }) => files.length,
      waitingMax,
    });
  }

  acquire(request: FileRequest, { principal, signal }: Caller): Promise<FileOutcome> {
    return this.#batcher.runSteps(async ({ attempt, attemptWaiting }) => {
      let asked = { ...request, holder: holderOf(principal) };
      let result = await attempt(asked, signal);
      for (let attempts = 1; !isDecided(result); attempts++) {
        if (attempts > attemptsMax)
          throw new DomainError('unavailable', 'too many want the same files; try again');
        if (result !== rowLocked) asked = await this.#prepareRetry(asked, result, signal);
        result = await attemptWaiting(asked, signal);
      }
      return result;
    });
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  /** Takes the step that must come before the next attempt, and returns the request of that attempt. */
  async #prepareRetry(
    asked: FileRequest,
    result: Exclude<AcquireResult, FileOutcome>,
    signal: AbortSignal | undefined,
  ): Promise<FileRequest> {
    if (result.kind === 'apply') {
      await applyStoredInstruction(this.#context, result.contentionId, asked.ownerId, signal);
      return asked;
    }
    await this.#context.fileReaper.reap(result.stale, signal);
    const { parentOwnerId } = result;
    return parentOwnerId === undefined ? asked : { ...asked, profile: { ...asked.profile, parentOwnerId } };
  }

  async #flush(
    calls: readonly FileRequest[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<(AcquireAnswer | RowLocked)[]> {
    const { database, outageMonitor, publisher } = this.#context;
    await outageMonitor.ensureFresh();
    const ownerIds = [...new Set(calls.flatMap(({ ownerId, callerId }) => [ownerId, callerId]))];
    const parentIds = calls.flatMap(({ profile }) => profile.parentOwnerId ?? []);
    const lockIds = parentIds.length === 0 ? ownerIds : [...new Set([...ownerIds, ...parentIds])];
    try {
      const { answers, effects } = await database.transaction(async (sql) => {
        // After a miss, the rows of all owners are ensured, known or not.
        const unknown = wait ? ownerIds : ownerIds.filter((ownerId) => !this.#known.has(ownerId));
        if (unknown.length > 0) await addOwners(sql, unknown, signal);
        const round = await FileAcquireBatch.open(sql, calls, lockIds, wait, signal);
        const verdicts = calls.map((call) => round.decide(call));
        await round.ledger.write(sql);
        return { answers: await round.answers(sql, calls, verdicts), effects: round.ledger.effects };
      }, signal);
      this.#remember(ownerIds);
      publisher.publish(effects);
      return answers;
    } catch (error) {
      // Another transaction was granted a file first. Nothing was written, so all requests are decided again.
      if (error instanceof FileTakenError) return calls.map(() => rowLocked);
      throw error;
    }
  }

  #remember(ownerIds: readonly string[]): void {
    if (this.#known.size > knownMax) this.#known.clear();
    for (const ownerId of ownerIds) this.#known.add(ownerId);
  }
}

const isDecided = (result: AcquireResult | RowLocked): result is FileOutcome =>
  result !== rowLocked && result.kind !== 'again' && result.kind !== 'apply';

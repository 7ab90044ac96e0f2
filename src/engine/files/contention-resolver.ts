import { DomainError, printable } from '../../domain/errors.ts';
import type { FileLease, Instruction, InstructOutcome } from '../../domain/files/file-lease.ts';
import { mayBorrow } from '../../domain/files/file-lending.ts';
import { livenessOf, type Owner } from '../../domain/files/file-owners.ts';
import type { InstructBlocker } from '../../domain/requests/files.ts';
import { isUuid } from '../../lib/uuid.ts';
import type { EntitySql, Sql } from '../../store/connection/sql.ts';
import { recordAudit } from '../../store/sql/access/audit.ts';
import {
  type ContendedFile,
  keepInstructionFor,
  readContentions,
} from '../../store/sql/files/contentions.ts';
import { lockOwners, readClock, restartIdle } from '../../store/sql/files/owners.ts';
import { type Holder, lockFreeFiles, readFiles } from '../../store/sql/files/rows.ts';
import { audited, detailOf } from '../access/audit/audited.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import { blockersOf } from './blocker-report.ts';
import type { Again } from './file-acquire-batch.ts';
import { type Cause, FileChangeset, FileTakenError } from './file-changeset.ts';

const again: Again = { kind: 'again', stale: [] };

/** How often an instruction is tried again because files have changed holders meanwhile. */
const attemptsMax = 20;

/**
 * Carries out operators' decisions on halted contentions. The halted owner and the holders that block it are
 * locked together, in the order in which every transaction locks owners, so that a revoked holder learns of
 * it.
 *
 * An owner that is not alive cannot be granted files. RETRY and FORCE_RELEASE are stored for it, and its next
 * request applies them. ABANDON grants nothing, and is carried out at once. A later instruction replaces a
 * stored one.
 */
export class ContentionResolver {
  readonly #context: EngineContext;

  constructor(context: EngineContext) {
    this.#context = context;
  }

  async instruct(contentionId: string, command: InstructBlocker, caller: Caller): Promise<InstructOutcome> {
    if (!isUuid(contentionId)) throw contentionNotFound(contentionId);
    const target = contentionId.toLowerCase();
    const { instruction, reason = null, requested_by: requestedBy } = command;
    const { peer, signal } = caller;
    const order = { instruction, reason, actor: requestedBy ?? peer };
    return untilDone(this.#context, signal, async (sql) => {
      const outcome = await carryOut(sql, target, order, undefined, signal);
      if (outcome.kind === 'again') return outcome;
      const detail = detailOf({ instruction, outcome: outcome.kind, reason });
      await recordAudit(sql, audited(caller, { action: 'files.instruct', target, detail, requestedBy }));
      return outcome;
    });
  }
}

/**
 * Applies the stored instruction of a contention for the owner that sends a request. Does nothing if none is
 * stored any more.
 */
export async function applyStoredInstruction(
  context: EngineContext,
  contentionId: string,
  ownerId: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  await untilDone(context, signal, (sql) => carryOut(sql, contentionId, undefined, ownerId, signal));
}

async function untilDone<T extends { kind: string } | undefined>(
  { database, outageMonitor, fileReaper, publisher }: EngineContext,
  signal: AbortSignal | undefined,
  work: (sql: EntitySql) => Promise<T | Again>,
): Promise<T> {
  await outageMonitor.ensureFresh();
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    const outcome = await database.transaction(work, signal).catch((error: unknown) => {
      if (error instanceof FileTakenError) return again;
      throw error;
    });
    if (outcome?.kind !== 'again') {
      publisher.publish({ filesChanged: true });
      return outcome as T;
    }
    await fileReaper.reap((outcome as Again).stale, signal);
  }
  throw new DomainError('unavailable', 'too many want the same files; try again');
}

/** The decision, its reason and its actor. */
interface ResolutionRequest {
  instruction: Instruction;
  reason: string | null;
  actor: string;
}

const contentionNotFound = (contentionId: string): DomainError =>
  new DomainError('contention_not_found', `there is no contention ${printable(contentionId)}`);

/**
 * Carries out an instruction; without one, the stored instruction, for `askerId`. Returns nothing if that
 * owner is not alive or no instruction is stored: its request is decided again anyway.
 */
async function carryOut(
  sql: Sql,
  contentionId: string,
  given: ResolutionRequest,
  askerId: undefined,
  signal: AbortSignal | undefined,
): Promise<InstructOutcome | Again>;
async function carryOut(
  sql: Sql,
  contentionId: string,
  given: undefined,
  askerId: string,
  signal: AbortSignal | undefined,
): Promise<InstructOutcome | Again | undefined>;
async function carryOut(
  sql: Sql,
  contentionId: string,
  given: ResolutionRequest | undefined,
  askerId: string | undefined,
  signal: AbortSignal | undefined,
): Promise<InstructOutcome | Again | undefined> {
  const [first, ...others] = await readContentions(sql, [contentionId], signal);
  if (!first) throw contentionNotFound(contentionId);
  const wanted = [first, ...others].map(({ fileId }) => fileId);
  const seen = [...(await readFiles(sql, wanted, signal)).values()];
  const ownerId = askerId ?? first.ownerId;
  const ownerIds = new Set([
    first.ownerId,
    ownerId,
    ...seen.flatMap((holder) => holder?.owner.ownerId ?? []),
  ]);
  const owners = await lockOwners(sql, [...ownerIds], { wait: true, signal });
  // From here no other transaction can change the contention, grant files to the holders, or take files from
  // them.
  const all = await readContentions(sql, [contentionId], signal);
  const halted = all.filter(
    ({ state, keptInstruction }) => state === 'HALTED' && (given !== undefined || keptInstruction !== null),
  );
  const order = given ?? storedInstruction(halted);
  if (!order) return undefined;
  if (halted.length === 0) throw notHalted(all);
  const fileIds = halted.map(({ fileId }) => fileId);
  const files = await readFiles(sql, fileIds, signal);
  const free = fileIds.filter((fileId) => files.get(fileId) === null);
  if (free.length > 0) await lockFreeFiles(sql, free, { wait: true, signal });
  const { nowMs } = await readClock(sql);
  const owner = owners.get(ownerId) as Owner;
  const liveness = livenessOf(owner, nowMs);
  if (liveness === 'dead' || liveness === 'idle') return { kind: 'again', stale: [ownerId] };
  if (liveness === 'ended' && !given) return undefined;
  const ledger = new FileChangeset(nowMs);
  if (liveness === 'ended' && order.instruction !== 'ABANDON') {
    await storeInstruction(sql, ledger, halted, order);
    return { kind: 'kept', contentionId, instruction: order.instruction };
  }
  const holders = halted.map(({ fileId }) => files.get(fileId) ?? null);
  const stale = holders.flatMap((holder) =>
    holder && livenessOf(holder.owner, nowMs) !== 'alive' ? [holder.owner.ownerId] : [],
  );
  if (stale.length > 0) return { kind: 'again', stale };
  if (holders.some((holder) => holder && !owners.has(holder.owner.ownerId))) return again;
  const instruction = new ContentionResolution(ledger, halted, holders, order, owner);
  const outcome = instruction.apply(given !== undefined);
  await keepInstructionFor(sql, contentionId, null);
  await ledger.write(sql);
  if (outcome === 'abandoned') return { kind: 'abandoned', contentionId };
  if (outcome === 'granted') {
    if (owner.stoppedAtMs !== null) await restartIdle(sql, owner.ownerId, nowMs);
    return { kind: 'granted', leases: instruction.leases() };
  }
  const still = await readContentions(sql, [contentionId]);
  const report = blockersOf(
    still.filter(({ state }) => state === 'HALTED'),
    nowMs,
  );
  if (report.kind !== 'halted') throw new Error(`contention ${contentionId} has not halted`);
  return report;
}

function storedInstruction([first]: readonly ContendedFile[]): ResolutionRequest | undefined {
  const kept = first?.keptInstruction;
  return kept ? { instruction: kept.instruction, reason: kept.reason, actor: kept.instructedBy } : undefined;
}

/** The owner is not alive: the decision waits for its next request. */
async function storeInstruction(
  sql: Sql,
  ledger: FileChangeset,
  halted: readonly ContendedFile[],
  { instruction, reason, actor }: ResolutionRequest,
): Promise<void> {
  const [first] = halted as [ContendedFile];
  for (const file of halted)
    ledger.addEvent('FILE_INSTRUCTED', nameOf(file), actor, { instruction, reason, kept: true });
  const kept = { instruction, instructedAtMs: ledger.nowMs, instructedBy: actor, reason };
  await keepInstructionFor(sql, first.contentionId, kept);
  await ledger.write(sql);
}

function notHalted(files: readonly ContendedFile[]): DomainError {
  const at = (ms: number | null) => new Date(ms ?? 0).toISOString();
  const waiting = files.find(({ closedAtMs }) => closedAtMs === null);
  const words = waiting
    ? `waits for its retry at ${at(waiting.retryAtMs)} and has not halted`
    : `is over: it was ${files[0]?.state} at ${at(files[0]?.closedAtMs ?? null)}`;
  return new DomainError('illegal_transition', `the contention ${words}`);
}

/** One instruction, applied to the locked rows. */
class ContentionResolution {
  readonly #ledger: FileChangeset;
  readonly #halted: readonly ContendedFile[];
  readonly #holders: readonly (Holder | null)[];
  readonly #request: ResolutionRequest;
  /** The owner that receives the granted files. */
  readonly #owner: Owner;

  constructor(
    ledger: FileChangeset,
    halted: readonly ContendedFile[],
    holders: readonly (Holder | null)[],
    order: ResolutionRequest,
    owner: Owner,
  ) {
    this.#ledger = ledger;
    this.#halted = halted;
    this.#holders = holders;
    this.#request = order;
    this.#owner = owner;
  }

  /** `isNew`: the instruction is new, not stored, and gets its event now. */
  apply(isNew: boolean): 'granted' | 'halted' | 'abandoned' {
    const { instruction, reason, actor } = this.#request;
    const cause = { actor, data: { instruction, reason } };
    if (isNew)
      for (const file of this.#halted)
        this.#ledger.addEvent('FILE_INSTRUCTED', nameOf(file), cause.actor, cause.data);
    if (instruction === 'ABANDON') {
      for (const file of this.#halted) this.#ledger.close(nameOf(file), 'abandon', cause);
      return 'abandoned';
    }
    if (instruction === 'RETRY' && this.#holders.some((holder) => this.#isBlockedBy(holder))) {
      for (const [i, file] of this.#halted.entries()) {
        const holder = this.#holders[i];
        if (holder && this.#isBlockedBy(holder)) this.#ledger.halt(nameOf(file), holder, cause);
      }
      return 'halted';
    }
    for (const [i, file] of this.#halted.entries()) this.#grant(file, this.#holders[i] ?? null, cause);
    return 'granted';
  }

  /** The granted leases, once the changeset is written. */
  leases(): FileLease[] {
    const { ownerId, profile, lastHeartbeatAtMs, expiresAtMs } = this.#owner;
    return this.#halted.map(({ fileId, repository, path }, i) => ({
      repository,
      path,
      ownerId,
      owner: profile,
      state: 'HELD',
      acquiredAtMs: this.#ledger.fences.has(fileId)
        ? this.#ledger.nowMs
        : (this.#holders[i]?.acquiredAtMs ?? this.#ledger.nowMs),
      lastHeartbeatAtMs,
      expiresAtMs,
      fence: this.#ledger.fences.get(fileId) ?? this.#holders[i]?.fence ?? '',
    }));
  }

  /** Another owner of the same caller may have been denied a file that this owner holds. */
  #isOwn(holder: Holder): boolean {
    return holder.owner.ownerId === this.#owner.ownerId;
  }

  /** A parent does not block its sub-agents. */
  #isLentBy(holder: Holder): boolean {
    const { ownerId, profile } = this.#owner;
    const borrower = { ownerId, parentOwnerId: profile.parentOwnerId };
    return mayBorrow(borrower, holder.owner.ownerId, holder.loan);
  }

  #isBlockedBy(holder: Holder | null): boolean {
    return holder !== null && !this.#isOwn(holder) && !this.#isLentBy(holder);
  }

  #grant(file: ContendedFile, holder: Holder | null, cause: Cause): void {
    const { ownerId } = this.#owner;
    this.#ledger.close(nameOf(file), 'grant', cause);
    if (holder && this.#isOwn(holder)) return;
    if (holder && this.#isLentBy(holder)) {
      this.#ledger.lend(file, holder, ownerId, cause);
      return;
    }
    if (holder) {
      const { ownerId: holderId } = holder.owner;
      const reason = `${this.#request.actor} had it released by force`;
      this.#ledger.end({ fileId: file.fileId, ownerId: holderId, state: 'RECLAIMED', reason }, cause, true);
    }
    this.#ledger.grant(file, { ownerId, callerId: file.ownerId }, cause);
  }
}

const nameOf = (file: ContendedFile) => ({
  contentionId: file.contentionId,
  ownerId: file.ownerId,
  file,
});

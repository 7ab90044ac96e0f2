import { DomainError, printable } from '../domain/errors.ts';
import type { InstructBlocker } from '../domain/file-commands.ts';
import type { FileLease, InstructOutcome } from '../domain/file-lease.ts';
import { fateOf, type Owner } from '../domain/file-owners.ts';
import type { Sql } from '../store/sql.ts';
import { type ContendedFile, readContentions } from '../store/statements/file-contentions.ts';
import { lockOwners, readClock, restartIdle } from '../store/statements/file-owners.ts';
import { type Holder, lockFreeFiles, readFiles } from '../store/statements/file-rows.ts';
import { blockedBy } from './blocked.ts';
import type { Caller, EngineContext } from './context.ts';
import { FileLedger, FileTaken } from './file-ledger.ts';
import { type Again, again } from './file-round.ts';
import { isUuid } from './ids.ts';

/** How often an instruction is begun again because the files have changed hands meanwhile. */
const attemptsMax = 20;

/**
 * Carries out what operators decide about halted contentions. The owner who waits and those who stand in its way are
 * locked together, in the order in which everybody locks them, so that whoever is revoked is told so for certain.
 */
export class FileInstructor {
  readonly #context: EngineContext;

  constructor(context: EngineContext) {
    this.#context = context;
  }

  async instruct(
    contentionId: string,
    command: InstructBlocker,
    { peer, signal }: Caller,
  ): Promise<InstructOutcome> {
    const { database, pulse, fileReaper, waker } = this.#context;
    if (!isUuid(contentionId)) throw contentionNotFound(contentionId);
    await pulse.fresh();
    const actor = command.requested_by ?? peer;
    for (let attempt = 1; attempt <= attemptsMax; attempt++) {
      const outcome = await database
        .transaction((sql) => carryOut(sql, contentionId.toLowerCase(), command, actor, signal), signal)
        .catch((error: unknown) => {
          if (error instanceof FileTaken) return again;
          throw error;
        });
      if (outcome.kind !== 'again') {
        waker.publishFiles();
        return outcome;
      }
      await fileReaper.reap(outcome.stale, signal);
    }
    throw new DomainError('unavailable', 'too many want the same files; try again');
  }
}

const contentionNotFound = (contentionId: string): DomainError =>
  new DomainError('contention_not_found', `there is no contention ${printable(contentionId)}`);

async function carryOut(
  sql: Sql,
  contentionId: string,
  command: InstructBlocker,
  actor: string,
  signal: AbortSignal | undefined,
): Promise<InstructOutcome | Again> {
  const before = await readContentions(sql, [contentionId], signal);
  const [first] = before;
  if (!first) throw contentionNotFound(contentionId);
  const fileIds = before.map(({ fileId }) => fileId);
  const seen = [...(await readFiles(sql, fileIds, signal)).values()];
  const ownerIds = new Set([first.ownerId, ...seen.flatMap((holder) => holder?.owner.ownerId ?? [])]);
  const owners = await lockOwners(sql, [...ownerIds], { wait: true, signal });
  // Now nobody else can change the contention, nor give more to those who stand in the way, nor take it from them.
  const all = await readContentions(sql, [contentionId], signal);
  const halted = all.filter(({ state }) => state === 'HALTED');
  if (halted.length === 0) throw notHalted(all);
  const files = await readFiles(
    sql,
    halted.map(({ fileId }) => fileId),
    signal,
  );
  const free = halted.flatMap(({ fileId }) => (files.get(fileId) === null ? fileId : []));
  if (free.length > 0) await lockFreeFiles(sql, free, { wait: true, signal });
  const { nowMs } = await readClock(sql);
  const owner = owners.get(first.ownerId) as Owner;
  const holders = halted.map(({ fileId }) => files.get(fileId) ?? null);
  const stale = staleAmong(owner, holders, nowMs);
  if (stale.length > 0) return { kind: 'again', stale };
  const isForced = command.instruction === 'FORCE_RELEASE';
  if (isForced && holders.some((holder) => holder && !owners.has(holder.owner.ownerId))) return again;
  const ledger = new FileLedger(nowMs);
  const instruction = new Instructed(ledger, halted, holders, actor, command);
  const outcome = instruction.decide();
  await ledger.write(sql);
  if (outcome === 'abandoned') return { kind: 'abandoned', contentionId };
  if (outcome === 'granted') {
    if (owner.stoppedAtMs !== null) await restartIdle(sql, owner.ownerId, nowMs);
    return { kind: 'granted', leases: instruction.leases(owner) };
  }
  const still = await readContentions(sql, [contentionId]);
  const report = blockedBy(
    still.filter(({ state }) => state === 'HALTED'),
    nowMs,
  );
  if (report.kind !== 'halted') throw new Error(`contention ${contentionId} has not halted`);
  return report;
}

/** Those whose time has come have to be seen to before: the owner's contentions may lapse with it, and files come free. */
function staleAmong(owner: Owner, holders: readonly (Holder | null)[], nowMs: number): string[] {
  const isStale = (one: Owner) => fateOf(one, nowMs) !== 'alive';
  const others = holders.flatMap((holder) => (holder && isStale(holder.owner) ? holder.owner.ownerId : []));
  return isStale(owner) ? [owner.ownerId, ...others] : others;
}

function notHalted(files: readonly ContendedFile[]): DomainError {
  const at = (ms: number | null) => new Date(ms ?? 0).toISOString();
  const waiting = files.find(({ closedAtMs }) => closedAtMs === null);
  const words = waiting
    ? `waits for its retry at ${at(waiting.retryAtMs)} and has not halted`
    : `is over: it was ${files[0]?.state} at ${at(files[0]?.closedAtMs ?? null)}`;
  return new DomainError('illegal_transition', `the contention ${words}`);
}

/** One instruction, judged on what is locked. */
class Instructed {
  readonly #ledger: FileLedger;
  readonly #halted: readonly ContendedFile[];
  readonly #holders: readonly (Holder | null)[];
  readonly #actor: string;
  readonly #command: InstructBlocker;

  constructor(
    ledger: FileLedger,
    halted: readonly ContendedFile[],
    holders: readonly (Holder | null)[],
    actor: string,
    command: InstructBlocker,
  ) {
    this.#ledger = ledger;
    this.#halted = halted;
    this.#holders = holders;
    this.#actor = actor;
    this.#command = command;
  }

  decide(): 'granted' | 'halted' | 'abandoned' {
    const { instruction } = this.#command;
    const cause = { actor: this.#actor, data: { instruction, reason: this.#command.reason ?? null } };
    for (const file of this.#halted)
      this.#ledger.tell('FILE_INSTRUCTED', nameOf(file), cause.actor, cause.data);
    if (instruction === 'ABANDON') {
      for (const file of this.#halted) this.#ledger.close(nameOf(file), 'abandon', cause);
      return 'abandoned';
    }
    if (instruction === 'RETRY' && this.#holders.some((holder) => holder !== null)) {
      for (const [i, file] of this.#halted.entries()) {
        const holder = this.#holders[i];
        if (holder) this.#ledger.halt(nameOf(file), holder, cause);
      }
      return 'halted';
    }
    const reason = `${this.#actor} had it released by force`;
    for (const [i, file] of this.#halted.entries()) {
      const holder = this.#holders[i];
      const { fileId, ownerId } = file;
      if (holder) {
        const end = { fileId, ownerId: holder.owner.ownerId, state: 'RECLAIMED', reason } as const;
        this.#ledger.end(end, cause, true);
      }
      this.#ledger.close(nameOf(file), 'grant', cause);
      this.#ledger.grant(file, ownerId, cause);
    }
    return 'granted';
  }

  /** What was granted, once the ledger is written. */
  leases(owner: Owner): FileLease[] {
    return this.#halted.map(({ fileId, repository, path, ownerId }) => ({
      repository,
      path,
      ownerId,
      owner: owner.profile,
      state: 'HELD',
      acquiredAtMs: this.#ledger.nowMs,
      lastHeartbeatAtMs: owner.lastHeartbeatAtMs,
      expiresAtMs: owner.expiresAtMs,
      fence: this.#ledger.fences.get(fileId) ?? '',
    }));
  }
}

const nameOf = (file: ContendedFile) => ({
  contentionId: file.contentionId,
  ownerId: file.ownerId,
  file,
});

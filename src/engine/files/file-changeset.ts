/**
 * The changes of one transaction to files, owners and contentions. They are collected while requests are
 * decided, and then written in one order, with their events. The caller has locked the owners concerned.
 */
import { type ContentionVerb, contentionTransitions } from '../../domain/files/contention-policy.ts';
import type { FileLease, FileName } from '../../domain/files/file-lease.ts';
import { extendLoan, type Loan } from '../../domain/files/file-lending.ts';
import type { Owner } from '../../domain/files/file-owners.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { iso } from '../../domain/time.ts';
import type { Sql } from '../../store/connection/sql.ts';
import {
  type ContentionClosing,
  closeContentions,
  type Halt,
  haltContentions,
} from '../../store/sql/files/contentions.ts';
import { type NewFileEvent, writeFileEvents } from '../../store/sql/files/events.ts';
import { type Denial, grantFiles, type NewFileLease } from '../../store/sql/files/grant.ts';
import { addLosses, deleteLosses } from '../../store/sql/files/losses.ts';
import { endOwners, restartIdle } from '../../store/sql/files/owners.ts';
import {
  endFiles,
  type FileEnd,
  type FileLeaseRecord,
  type Holder,
  toFileLease,
} from '../../store/sql/files/rows.ts';
import { type OwnerTouch, touchOwners } from '../../store/sql/files/touch-owners.ts';
import { type LoanTransfer, transferFiles } from '../../store/sql/files/transfer.ts';
import type { CommitEffects } from '../context/commit-effects.ts';

/** A file to be granted was taken meanwhile: the whole transaction is decided again. */
export class FileTakenError extends Error {}

/** The actor of a change, and its event data. */
export interface Cause {
  actor: string;
  data?: JsonObject;
}

/** The contention that a change belongs to, with its owner and file. */
export interface ContendedName {
  contentionId: string;
  ownerId: string;
  file: FileName;
}

interface End extends FileEnd {
  cause: Cause;
  /** Its owner must be notified that it has lost the file. */
  isLoss: boolean;
}

/** How all leases of an owner end. */
export type OwnerEnd = Pick<End, 'state' | 'reason' | 'cause'>;

export class FileChangeset {
  readonly nowMs: number;
  readonly #touches = new Map<string, OwnerTouch>();
  readonly #endings = new Map<string, 'ENDED' | 'DEAD'>();
  readonly #ends = new Map<string, End>();
  readonly #transfers: LoanTransfer[] = [];
  /** Stopped owners that get a lease now without a request. */
  readonly #restarts = new Set<string>();
  readonly #grants = new Map<string, NewFileLease>();
  #grantCause: Cause | undefined;
  readonly #denials: Denial[] = [];
  readonly #halts = new Map<string, Halt>();
  readonly #closings = new Map<string, ContentionClosing>();
  readonly #known: { ownerId: string; fileId: string }[] = [];
  /** Events whose data are known already. Events of grants and ends come from the written rows. */
  readonly #events: NewFileEvent[] = [];
  /** The owners after `write`. */
  owners: ReadonlyMap<string, Owner> = new Map();
  /** Leases that `write` has ended. */
  ended: readonly FileLeaseRecord[] = [];
  /** The fences of the granted leases, by file. */
  fences: ReadonlyMap<string, string> = new Map();

  constructor(nowMs: number) {
    this.nowMs = nowMs;
  }

  /** The effects of `write`: whether it has made a change that others may wait for. */
  get effects(): CommitEffects {
    const changes = this.#grants.size + this.#ends.size + this.#transfers.length + this.#events.length;
    return { filesChanged: changes > 0 };
  }

  touch(touch: OwnerTouch): void {
    const before = this.#touches.get(touch.ownerId);
    this.#touches.set(touch.ownerId, { ...touch, born: touch.born || (before?.born ?? false) });
  }

  /** `cause` is given if the owner did not request the grant; it holds for all grants of the transaction. */
  grant(file: FileName, { ownerId, callerId }: { ownerId: string; callerId: string }, cause?: Cause): void {
    this.#grants.set(file.fileId, { file, ownerId, callerId });
    this.#grantCause = cause;
  }

  deny(
    { contentionId, ownerId, file }: ContendedName,
    { owner, acquiredAtMs }: Holder,
    retryAtMs: number,
  ): void {
    const blockerId = owner.ownerId;
    this.#denials.push({ contentionId, ownerId, file, blockerId, blockerAcquiredAtMs: acquiredAtMs });
    this.addEvent(contentionTransitions.deny.event, { contentionId, ownerId, file }, ownerId, {
      blocker_owner_id: blockerId,
      retry_at: iso(retryAtMs),
    });
  }

  halt({ contentionId, ownerId, file }: ContendedName, { owner, acquiredAtMs }: Holder, cause: Cause): void {
    const halt = {
      contentionId,
      fileId: file.fileId,
      blockerId: owner.ownerId,
      blockerAcquiredAtMs: acquiredAtMs,
    };
    this.#halts.set(`${contentionId} ${file.fileId}`, halt);
    const data = { ...cause.data, blocker_owner_id: owner.ownerId };
    this.addEvent(contentionTransitions.halt.event, { contentionId, ownerId, file }, cause.actor, data);
  }

  /** Closes a contention for a file. A grant has its own event; the other ends get theirs here. */
  close(
    { contentionId, ownerId, file }: ContendedName,
    verb: Extract<ContentionVerb, 'grant' | 'abandon' | 'lapse'>,
    cause: Cause,
  ): void {
    const { to, event } = contentionTransitions[verb];
    this.#closings.set(`${contentionId} ${file.fileId}`, { contentionId, fileId: file.fileId, state: to });
    if (verb !== 'grant') this.addEvent(event, { contentionId, ownerId, file }, cause.actor, cause.data);
  }

  end(end: FileEnd, cause: Cause, isLoss = false): void {
    this.#ends.set(end.fileId, { ...end, cause, isLoss });
  }

  /** Transfers a file from its locked holder to a sub-agent. */
  lend(file: FileName, { owner, loan }: Holder, borrowerId: string, { actor, data = {} }: Cause): Loan {
    const lent = extendLoan(owner.ownerId, loan, this.nowMs);
    this.#transfers.push({
      fileId: file.fileId,
      fromId: owner.ownerId,
      toId: borrowerId,
      loan: lent,
      endEvent: {
        type: 'FILE_RELEASED',
        data: { ...data, reason: 'lent to a sub-agent', lent_to: borrowerId },
      },
      grantData: { ...data, lent_by: owner.ownerId },
      actor,
    });
    return lent;
  }

  /** Returns a borrowed file to an owner that has lent it; both are locked. */
  giveBack(fileId: string, from: Owner, heir: Owner, loan: Loan, { state, reason, cause }: OwnerEnd): void {
    const { nowMs } = this;
    this.#transfers.push({
      fileId,
      fromId: from.ownerId,
      toId: heir.ownerId,
      loan,
      endEvent: {
        type: state === 'RELEASED' ? 'FILE_RELEASED' : 'FILE_RECLAIMED',
        data: { reason, ...timesOf(state, from, nowMs), ...cause.data, returned_to: heir.ownerId },
      },
      grantData: { ...cause.data, returned_by: from.ownerId },
      actor: cause.actor,
    });
    if (heir.stoppedAtMs !== null) this.#restarts.add(heir.ownerId);
  }

  endOwner(ownerId: string, state: 'ENDED' | 'DEAD', cause: Cause): void {
    this.#endings.set(ownerId, state);
    this.addOwnerEvent(state === 'DEAD' ? 'OWNER_DEAD' : 'OWNER_ENDED', ownerId, cause);
  }

  /** The owner requests or releases this file, and so needs no notice that it has lost it. */
  rememberFile(ownerId: string, fileId: string): void {
    this.#known.push({ ownerId, fileId });
  }

  addEvent(
    type: NewFileEvent['type'],
    { contentionId, ownerId, file }: ContendedName,
    actor: string,
    data: JsonObject = {},
  ): void {
    const { repository, path } = file;
    this.#events.push({ type, ownerId, repository, path, contentionId, actor, data });
  }

  addOwnerEvent(type: NewFileEvent['type'], ownerId: string, { actor, data = {} }: Cause): void {
    this.#events.push({ type, ownerId, actor, data });
  }

  /**
   * Leases end before the files are granted to others, and contentions lapse before new ones are made for the
   * same file. Throws a `FileTakenError` if a file that seemed free is not.
   */
  async write(sql: Sql): Promise<void> {
    const { nowMs } = this;
    const touches = [...this.#touches.values()];
    const hasDecisions = this.#grants.size + this.#denials.length > 0;
    const touched = hasDecisions ? [] : await touchOwners(sql, touches, nowMs);
    const ended = await endFiles(sql, [...this.#ends.values()], nowMs);
    await this.#writeLosses(sql, ended);
    const transferred = await transferFiles(sql, this.#transfers, nowMs);
    if (transferred.length < this.#transfers.length) throw new FileTakenError();
    this.ended = [...ended, ...transferred];
    await deleteLosses(sql, this.#known);
    const closings = [...this.#closings.values()];
    await closeContentions(
      sql,
      closings.filter(({ state }) => state !== 'GRANTED'),
      nowMs,
    );
    await haltContentions(sql, [...this.#halts.values()], nowMs);
    const events = [...this.#endEvents(ended), ...this.#events];
    const fences = new Map(transferred.map(({ file_id, new_fence }) => [file_id, new_fence]));
    if (hasDecisions) {
      const [grants, denials, cause] = [[...this.#grants.values()], this.#denials, this.#grantCause];
      const granted = await grantFiles(sql, { touches, grants, denials, events, cause }, nowMs);
      if (granted.size < grants.length) throw new FileTakenError();
      for (const [fileId, fence] of granted) fences.set(fileId, fence);
    } else await writeFileEvents(sql, events, nowMs);
    this.fences = fences;
    await closeContentions(
      sql,
      closings.filter(({ state }) => state === 'GRANTED'),
      nowMs,
    );
    const endings = [...this.#endings].map(([ownerId, state]) => ({ ownerId, state }));
    this.owners = new Map([...touched, ...(await endOwners(sql, endings, nowMs))]);
    for (const ownerId of this.#restarts) await restartIdle(sql, ownerId, nowMs);
  }

  async #writeLosses(sql: Sql, ended: readonly FileLeaseRecord[]): Promise<void> {
    const lost = ended.filter(({ file_id }) => this.#ends.get(file_id)?.isLoss);
    const [first] = lost;
    const reason = first && this.#ends.get(first.file_id)?.reason;
    if (reason !== undefined) await addLosses(sql, lost, reason, this.nowMs);
  }

  #endEvents(ended: readonly FileLeaseRecord[]): NewFileEvent[] {
    return ended.map((record) => {
      const { state, reason, cause } = this.#ends.get(record.file_id) as End;
      const lease = toFileLease(record);
      return {
        type: state === 'RELEASED' ? 'FILE_RELEASED' : 'FILE_RECLAIMED',
        ownerId: lease.ownerId,
        repository: lease.repository,
        path: lease.path,
        fence: lease.fence,
        actor: cause.actor,
        data: { reason, ...timesOf(state, lease, this.nowMs), ...cause.data },
      };
    });
  }
}

/** A revoked lease records both times: the last heartbeat, and when it was revoked. */
const timesOf = (
  state: End['state'],
  { lastHeartbeatAtMs }: Pick<FileLease, 'lastHeartbeatAtMs'>,
  nowMs: number,
): JsonObject =>
  state === 'RELEASED' ? {} : { last_heartbeat_at: iso(lastHeartbeatAtMs), reclaimed_at: iso(nowMs) };

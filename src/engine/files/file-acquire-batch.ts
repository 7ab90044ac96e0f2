import { isHeldBy } from '../../domain/access/holder.ts';
import type { DomainError } from '../../domain/errors.ts';
import {
  type AskedFile,
  type Decision,
  decideContention,
  phaseOf,
  retryMs,
} from '../../domain/files/contention-policy.ts';
import type { FileLease, FileName, FileOutcome } from '../../domain/files/file-lease.ts';
import { mayBorrow, notLent } from '../../domain/files/file-lending.ts';
import { heldByAnother, livenessOf, type Owner, ownerTtlMs } from '../../domain/files/file-owners.ts';
import type { FileRequest } from '../../domain/requests/files.ts';
import { type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import { newId } from '../../lib/uuid.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type ContendedFile, readContentions } from '../../store/sql/files/contentions.ts';
import { lockOwners } from '../../store/sql/files/owners.ts';
import { type OpenContention, readHolders } from '../../store/sql/files/read-holders.ts';
import { type Holder, lockFreeFiles } from '../../store/sql/files/rows.ts';
import { blockersOf } from './blocker-report.ts';
import { type ContendedName, FileChangeset } from './file-changeset.ts';

/** The request must be decided again, and another step must come first. */
export interface Again {
  kind: 'again';
  /** These owners must be reaped first. */
  stale: readonly string[];
  /** The owner's parent holds a file, and must be locked together with it. */
  parentOwnerId?: string;
}

type Verdict = Extract<Decision, { kind: 'grant' | 'answer' | 'apply' }> | Again | DomainError | RowLocked;

/** The rows that a batch has read and locked. */
interface Found {
  nowMs: number;
  owners: Map<string, Owner>;
  /** The holders of the files that have a row. */
  files: Map<string, Holder | null>;
  /** Files that are free and locked. */
  locked: ReadonlySet<string>;
  contentions: Map<string, OpenContention>;
}

/**
 * The requests of one transaction. Each is decided against the locked rows and the grants of the requests
 * before it.
 */
export class FileAcquireBatch {
  readonly ledger: FileChangeset;
  readonly #found: Found;
  /** Contentions that a grant of this batch closes: they are written after all denials of the batch. */
  readonly #granted = new Set<string>();
  /** The denials of this batch, as they will be stored. */
  readonly #denied: ContendedFile[] = [];

  private constructor(found: Found) {
    this.ledger = new FileChangeset(found.nowMs);
    this.#found = found;
  }

  static async open(
    sql: Sql,
    calls: readonly FileRequest[],
    lockIds: readonly string[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<FileAcquireBatch> {
    const owners = await lockOwners(sql, lockIds, { wait, signal });
    const asked = calls.flatMap(({ ownerId, callerId, files }) =>
      owners.has(ownerId) && owners.has(callerId) ? files.map(({ fileId }) => ({ callerId, fileId })) : [],
    );
    const seen = await readHolders(sql, asked, signal);
    const free = [...seen.files].flatMap(([fileId, holder]) => (holder === null ? [fileId] : []));
    const locked = free.length > 0 ? await lockFreeFiles(sql, free, { wait, signal }) : undefined;
    return new FileAcquireBatch({
      owners,
      files: seen.files,
      contentions: new Map(seen.contentions.map((each) => [contentionOf(each.callerId, each.fileId), each])),
      locked: locked?.fileIds ?? new Set(),
      nowMs: locked?.nowMs ?? seen.nowMs,
    });
  }

  /** Decides one request and enters it into the changeset. */
  decide(call: FileRequest): Verdict {
    const { nowMs, owners } = this.#found;
    const owner = owners.get(call.ownerId);
    if (!owner || !owners.has(call.callerId)) return rowLocked;
    const liveness = livenessOf(owner, nowMs);
    const stranger = this.#strangerIn(call);
    if (stranger !== undefined) return heldByAnother(stranger);
    // A dead owner must be ended before it can start again, and an idle owner no longer owns the files that
    // it gave up.
    if (liveness === 'dead' || liveness === 'idle') return { kind: 'again', stale: [owner.ownerId] };
    const stale = new Set<string>();
    const decision = decideContention(
      call.files.map((file) => this.#asked(file, call, owner, stale)),
      nowMs,
    );
    if (decision.kind === 'grant') {
      if (stale.size > 0) return { kind: 'again', stale: [...stale] };
      if (call.files.some(({ fileId }) => this.#isOutOfReach(fileId))) return rowLocked;
      const parentOwnerId = this.#parentToLock(call, owner);
      if (parentOwnerId !== undefined) return { kind: 'again', stale: [], parentOwnerId };
    }
    const touched = this.#touch(owner, call, liveness === 'ended');
    if (decision.kind === 'answer' || decision.kind === 'apply') return decision;
    this.#lapse(call);
    if (decision.kind === 'halt') return this.#halt(call, new Set(decision.fileIds));
    if (decision.kind === 'deny') return this.#deny(call, new Set(decision.fileIds));
    this.#grant(touched, call);
    return decision;
  }

  /** The answer to each request, once the changeset is written. */
  async answers(
    sql: Sql,
    calls: readonly FileRequest[],
    verdicts: readonly Verdict[],
  ): Promise<(FileOutcome | Exclude<Verdict, { kind: 'grant' | 'answer' }>)[]> {
    const ids = new Set(
      verdicts.flatMap((verdict) =>
        isVerdict(verdict) && verdict.kind === 'answer' ? verdict.contentionId : [],
      ),
    );
    for (const { contentionId } of this.#denied) ids.delete(contentionId);
    const contended = [...this.#denied, ...(await readContentions(sql, [...ids]))];
    const byId = Map.groupBy(contended, ({ contentionId }) => contentionId);
    return verdicts.map((verdict, i) => {
      if (!isVerdict(verdict) || verdict.kind === 'again' || verdict.kind === 'apply') return verdict;
      if (verdict.kind === 'grant') return { kind: 'granted', leases: this.#leases(calls[i] as FileRequest) };
      const { contentionId, state } = verdict;
      const files = byId.get(contentionId) ?? [];
      return blockersOf(
        files.filter((file) => file.state === state),
        this.ledger.nowMs,
      );
    });
  }

  /** The field that names an owner whose present life began with another credential. */
  #strangerIn({ ownerId, callerId, holder }: FileRequest): 'owner_id' | 'caller_id' | undefined {
    const { nowMs, owners } = this.#found;
    const isAnothers = (name: string) => {
      const owner = owners.get(name) as Owner;
      return !isHeldBy(owner.holder, holder) && ['alive', 'idle'].includes(livenessOf(owner, nowMs));
    };
    return isAnothers(ownerId) ? 'owner_id' : isAnothers(callerId) ? 'caller_id' : undefined;
  }

  #asked({ fileId }: FileName, call: FileRequest, owner: Owner, stale: Set<string>): AskedFile {
    const { nowMs, files } = this.#found;
    const holder = files.get(fileId);
    // An owner's own file is granted again at once, even if another owner of the same caller waits for it.
    const isOwn = holder?.owner.ownerId === owner.ownerId;
    const contention = isOwn ? undefined : this.#contention(call, fileId);
    if (!holder || isOwn) return { fileId, isBlocked: false, contention };
    const isAlive = livenessOf(holder.owner, nowMs) === 'alive';
    if (!isAlive) stale.add(holder.owner.ownerId);
    return { fileId, isBlocked: isAlive && !isLentTo(call, owner, holder), contention };
  }

  /** The parent that lends files to this request, if it is not locked or was granted them in this batch. */
  #parentToLock({ files, ...call }: FileRequest, owner: Owner): string | undefined {
    const { owners, files: found } = this.#found;
    for (const { fileId } of files) {
      const holder = found.get(fileId);
      if (!holder || !isLentTo(call, owner, holder)) continue;
      if (!owners.has(holder.owner.ownerId) || holder.fence === '') return holder.owner.ownerId;
    }
    return undefined;
  }

  /** The file has a row and seemed free, and another transaction has locked it. */
  #isOutOfReach(fileId: string): boolean {
    const { files, locked } = this.#found;
    return files.get(fileId) === null && !locked.has(fileId);
  }

  #contention({ callerId }: Pick<FileRequest, 'callerId'>, fileId: string): OpenContention | undefined {
    return this.#found.contentions.get(contentionOf(callerId, fileId));
  }

  /** A request counts as heartbeat and as activity. An ended owner starts again. */
  #touch(owner: Owner, { ownerId, holder, profile, files }: FileRequest, born: boolean): Owner {
    const { nowMs } = this.ledger;
    this.ledger.touch({ ownerId, kind: 'active', born, holder, profile });
    if (owner.stoppedAtMs !== null) this.ledger.addOwnerEvent('OWNER_RESUMED', ownerId, { actor: ownerId });
    if (owner.hasLosses) for (const { fileId } of files) this.ledger.rememberFile(ownerId, fileId);
    const touched: Owner = {
      ...owner,
      profile: {
        agent: profile.agent ?? owner.profile.agent,
        host: profile.host ?? owner.profile.host,
        pid: profile.pid ?? owner.profile.pid,
        branch: profile.branch ?? owner.profile.branch,
        parentOwnerId: parentOf({ profile }, owner),
      },
      holder: born ? holder : owner.holder,
      state: 'ALIVE',
      bornAtMs: born ? nowMs : owner.bornAtMs,
      lastHeartbeatAtMs: nowMs,
      lastActivityAtMs: nowMs,
      expiresAtMs: nowMs + ownerTtlMs,
      stoppedAtMs: null,
      idleAtMs: null,
      endedAtMs: null,
    };
    this.#found.owners.set(ownerId, touched);
    return touched;
  }

  #lapse({ callerId, files }: FileRequest): void {
    const { nowMs } = this.ledger;
    for (const file of files) {
      const contention = this.#contention({ callerId }, file.fileId);
      if (!contention || phaseOf(contention, nowMs) !== 'lapsed') continue;
      const { contentionId } = contention;
      const cause = { actor: callerId, data: { reason: 'its retry was not used' } };
      this.ledger.close({ contentionId, ownerId: callerId, file }, 'lapse', cause);
      this.#found.contentions.delete(contentionOf(callerId, file.fileId));
    }
  }

  #grant(owner: Owner, { ownerId, callerId, files: asked }: FileRequest): void {
    const { nowMs, files, contentions } = this.#found;
    for (const file of asked) {
      const { fileId } = file;
      const holder = files.get(fileId);
      if (holder?.owner.ownerId === ownerId) continue;
      const contention = this.#contention({ callerId }, fileId);
      if (contention) {
        const { contentionId } = contention;
        this.ledger.close({ contentionId, ownerId: callerId, file }, 'grant', { actor: ownerId });
        contentions.delete(contentionOf(callerId, fileId));
        this.#granted.add(contentionOf(callerId, fileId));
      }
      const loan = holder ? this.ledger.lend(file, holder, ownerId, { actor: ownerId }) : notLent;
      if (!holder) this.ledger.grant(file, { ownerId, callerId });
      files.set(fileId, { owner, acquiredAtMs: nowMs, fence: '', loan });
    }
  }

  #deny({ callerId, files }: FileRequest, blocked: ReadonlySet<string>): Verdict {
    // Another owner of this caller was granted the file. Its contention stays open until that is written.
    if ([...blocked].some((fileId) => this.#granted.has(contentionOf(callerId, fileId)))) return rowLocked;
    const { nowMs } = this.ledger;
    const contentionId = newId();
    const retryAtMs = nowMs + retryMs;
    for (const file of files) {
      const { fileId } = file;
      if (!blocked.has(fileId)) continue;
      const holder = this.#holder(fileId);
      const name = { contentionId, ownerId: callerId, file };
      this.ledger.deny(name, holder, retryAtMs);
      this.#denied.push(deniedFile(name, holder, nowMs));
      const state = 'CONTENDED';
      const contention = { contentionId, fileId, callerId, state, retryAtMs, isInstructed: false } as const;
      this.#found.contentions.set(contentionOf(callerId, fileId), contention);
    }
    return { kind: 'answer', contentionId, state: 'CONTENDED' };
  }

  #halt({ callerId, files }: FileRequest, blocked: ReadonlySet<string>): Verdict {
    let first: string | undefined;
    for (const file of files) {
      const contention = this.#contention({ callerId }, file.fileId);
      if (!contention || !blocked.has(file.fileId)) continue;
      const { contentionId } = contention;
      first ??= contentionId;
      const name = { contentionId, ownerId: callerId, file };
      this.ledger.halt(name, this.#holder(file.fileId), { actor: callerId });
      this.#found.contentions.set(contentionOf(callerId, file.fileId), { ...contention, state: 'HALTED' });
    }
    if (first === undefined) throw new Error('a request was halted without a contention');
    return { kind: 'answer', contentionId: first, state: 'HALTED' };
  }

  #holder(fileId: string): Holder {
    const holder = this.#found.files.get(fileId);
    if (!holder) throw new Error('a blocked file has no blocker');
    return holder;
  }

  #leases({ ownerId, files }: FileRequest): FileLease[] {
    const owner = this.#found.owners.get(ownerId) as Owner;
    return files.map(({ fileId, repository, path }) => {
      const { acquiredAtMs, fence } = this.#holder(fileId);
      return {
        repository,
        path,
        ownerId,
        owner: owner.profile,
        state: 'HELD',
        acquiredAtMs,
        lastHeartbeatAtMs: owner.lastHeartbeatAtMs,
        expiresAtMs: owner.expiresAtMs,
        fence: this.ledger.fences.get(fileId) ?? fence,
      };
    });
  }
}

const isVerdict = (verdict: Verdict): verdict is Exclude<Verdict, DomainError | RowLocked> =>
  verdict !== rowLocked && !(verdict instanceof Error);

/** Neither a caller's name nor a file's id is delimited, so the id of fixed length comes first. */
const contentionOf = (callerId: string, fileId: string): string => `${fileId} ${callerId}`;

/** The parent of a sub-agent: from its request, else from its record. */
const parentOf = ({ profile }: Pick<FileRequest, 'profile'>, owner: Owner): string | null =>
  profile.parentOwnerId ?? owner.profile.parentOwnerId;

/** Whether the holder is the parent of the requesting owner, and lends it the file. */
const isLentTo = (call: Pick<FileRequest, 'profile' | 'holder'>, owner: Owner, holder: Holder): boolean =>
  isHeldBy(holder.owner.holder, call.holder) &&
  mayBorrow(
    { ownerId: owner.ownerId, parentOwnerId: parentOf(call, owner) },
    holder.owner.ownerId,
    holder.loan,
  );

const deniedFile = (
  { contentionId, ownerId, file }: ContendedName,
  { owner, acquiredAtMs }: Holder,
  nowMs: number,
): ContendedFile => ({
  ...file,
  contentionId,
  ownerId,
  state: 'CONTENDED',
  deniedAtMs: nowMs,
  retryAtMs: nowMs + retryMs,
  retriedAtMs: null,
  haltedAtMs: null,
  closedAtMs: null,
  isAnnounced: false,
  keptInstruction: null,
  blockerId: owner.ownerId,
  blockerAcquiredAtMs: acquiredAtMs,
  blocker: {
    ownerId: owner.ownerId,
    profile: owner.profile,
    acquiredAtMs,
    lastHeartbeatAtMs: owner.lastHeartbeatAtMs,
  },
});

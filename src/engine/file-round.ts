import { type AskedFile, type Judgement, judge, retryMs, standingOf } from '../domain/contentions.ts';
import type { FileRequest } from '../domain/file-commands.ts';
import type { FileLease, FileName, FileOutcome } from '../domain/file-lease.ts';
import { fateOf, type Owner, ownerTtlMs } from '../domain/file-owners.ts';
import type { Sql } from '../store/sql.ts';
import { type ContendedFile, readContentions } from '../store/statements/file-contentions.ts';
import { lockOwners } from '../store/statements/file-owners.ts';
import { type Holder, lockFreeFiles } from '../store/statements/file-rows.ts';
import { lookAtFiles, type OpenContention } from '../store/statements/look-at-files.ts';
import { blockedBy } from './blocked.ts';
import { type ContendedName, FileLedger } from './file-ledger.ts';
import { newId } from './ids.ts';

/** To be judged once more: rows were locked by somebody, or these owners have to be reaped before. */
export interface Again {
  kind: 'again';
  stale: readonly string[];
}

export const again: Again = { kind: 'again', stale: [] };

type Verdict = Extract<Judgement, { kind: 'grant' | 'answer' }> | Again;

/** What a round has locked and found. */
interface Found {
  nowMs: number;
  owners: Map<string, Owner>;
  /** Who holds the files that have a row. */
  files: Map<string, Holder | null>;
  /** Files that are free and locked. */
  locked: ReadonlySet<string>;
  contentions: Map<string, OpenContention>;
}

/** The requests of one transaction, judged one after the other against what is locked and what those before have got. */
export class FileRound {
  readonly ledger: FileLedger;
  readonly #found: Found;
  /** What this round has denied, as it will stand there. */
  readonly #denied: ContendedFile[] = [];

  private constructor(found: Found) {
    this.ledger = new FileLedger(found.nowMs);
    this.#found = found;
  }

  static async open(
    sql: Sql,
    calls: readonly FileRequest[],
    ownerIds: readonly string[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<FileRound> {
    const owners = await lockOwners(sql, ownerIds, { wait, signal });
    const asked = calls.flatMap(({ ownerId, files }) =>
      owners.has(ownerId) ? files.map(({ fileId }) => ({ ownerId, fileId })) : [],
    );
    const seen = await lookAtFiles(sql, asked, signal);
    const free = [...seen.files].flatMap(([fileId, holder]) => (holder === null ? [fileId] : []));
    const locked = free.length > 0 ? await lockFreeFiles(sql, free, { wait, signal }) : undefined;
    return new FileRound({
      owners,
      files: seen.files,
      contentions: new Map(seen.contentions.map((each) => [contentionOf(each.ownerId, each.fileId), each])),
      locked: locked?.fileIds ?? new Set(),
      nowMs: locked?.nowMs ?? seen.nowMs,
    });
  }

  /** Decides about one request and enters it into the ledger. */
  judge(call: FileRequest): Verdict {
    const { nowMs, owners } = this.#found;
    const owner = owners.get(call.ownerId);
    if (!owner) return again;
    const fate = fateOf(owner, nowMs);
    // Its old life has to be over before a new one begins, and what it gave up by being idle is not its own any more.
    if (fate === 'dead' || fate === 'idle') return { kind: 'again', stale: [owner.ownerId] };
    const stale = new Set<string>();
    const judgement = judge(
      call.files.map((file) => this.#asked(file, owner, stale)),
      nowMs,
    );
    if (judgement.kind === 'grant') {
      if (stale.size > 0) return { kind: 'again', stale: [...stale] };
      if (call.files.some(({ fileId }) => this.#isOutOfReach(fileId))) return again;
    }
    const touched = this.#touch(owner, call, fate === 'over');
    if (judgement.kind === 'answer') return judgement;
    this.#lapse(owner, call);
    if (judgement.kind === 'halt') return this.#halt(owner, call, new Set(judgement.fileIds));
    if (judgement.kind === 'deny') return this.#deny(owner, call, new Set(judgement.fileIds));
    this.#grant(touched, call);
    return judgement;
  }

  /** What is said to each request, once the ledger is written. */
  async answers(
    sql: Sql,
    calls: readonly FileRequest[],
    verdicts: readonly Verdict[],
  ): Promise<(FileOutcome | Again)[]> {
    const ids = new Set(
      verdicts.flatMap((verdict) => (verdict.kind === 'answer' ? verdict.contentionId : [])),
    );
    for (const { contentionId } of this.#denied) ids.delete(contentionId);
    const contended = [...this.#denied, ...(await readContentions(sql, [...ids]))];
    const byId = Map.groupBy(contended, ({ contentionId }) => contentionId);
    return verdicts.map((verdict, i) => {
      if (verdict.kind === 'again') return verdict;
      if (verdict.kind === 'grant') return { kind: 'granted', leases: this.#leases(calls[i] as FileRequest) };
      const { contentionId, state } = verdict;
      const files = byId.get(contentionId) ?? [];
      return blockedBy(
        files.filter((file) => file.state === state),
        this.ledger.nowMs,
      );
    });
  }

  #asked({ fileId }: FileName, owner: Owner, stale: Set<string>): AskedFile {
    const { nowMs, files } = this.#found;
    const contention = this.#contention(owner, fileId);
    const holder = files.get(fileId)?.owner;
    if (!holder || holder.ownerId === owner.ownerId) return { fileId, isBlocked: false, contention };
    const isBlocked = fateOf(holder, nowMs) === 'alive';
    if (!isBlocked) stale.add(holder.ownerId);
    return { fileId, isBlocked, contention };
  }

  /** It has a row, seemed free, and somebody else has it locked. */
  #isOutOfReach(fileId: string): boolean {
    const { files, locked } = this.#found;
    return files.get(fileId) === null && !locked.has(fileId);
  }

  #contention({ ownerId }: Owner, fileId: string): OpenContention | undefined {
    return this.#found.contentions.get(contentionOf(ownerId, fileId));
  }

  /** Asking is a sign of life and of work. Whose life was over begins a new one. */
  #touch(owner: Owner, { ownerId, profile, files }: FileRequest, born: boolean): Owner {
    const { nowMs } = this.ledger;
    this.ledger.touch({ ownerId, kind: 'active', born, profile });
    if (owner.stoppedAtMs !== null) this.ledger.tellOfOwner('OWNER_RESUMED', ownerId, { actor: ownerId });
    if (owner.hasLosses) for (const { fileId } of files) this.ledger.know(ownerId, fileId);
    const touched: Owner = {
      ...owner,
      profile: {
        agent: profile.agent ?? owner.profile.agent,
        host: profile.host ?? owner.profile.host,
        pid: profile.pid ?? owner.profile.pid,
        branch: profile.branch ?? owner.profile.branch,
      },
      state: 'ALIVE',
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

  #lapse(owner: Owner, { files }: FileRequest): void {
    const { nowMs } = this.ledger;
    for (const file of files) {
      const contention = this.#contention(owner, file.fileId);
      if (!contention || standingOf(contention, nowMs) !== 'lapsed') continue;
      const { contentionId, ownerId } = contention;
      const cause = { actor: ownerId, data: { reason: 'its retry was not used' } };
      this.ledger.close({ contentionId, ownerId, file }, 'lapse', cause);
      this.#found.contentions.delete(contentionOf(ownerId, file.fileId));
    }
  }

  #grant(owner: Owner, { ownerId, files: asked }: FileRequest): void {
    const { nowMs, files, contentions } = this.#found;
    for (const file of asked) {
      const { fileId } = file;
      const contention = this.#contention(owner, fileId);
      if (contention) {
        const { contentionId } = contention;
        this.ledger.close({ contentionId, ownerId, file }, 'grant', { actor: ownerId });
        contentions.delete(contentionOf(ownerId, fileId));
      }
      if (files.get(fileId)) continue;
      this.ledger.grant(file, ownerId);
      files.set(fileId, { owner, acquiredAtMs: nowMs, fence: '' });
    }
  }

  #deny(owner: Owner, { ownerId, files }: FileRequest, blocked: ReadonlySet<string>): Verdict {
    const { nowMs } = this.ledger;
    const contentionId = newId();
    const retryAtMs = nowMs + retryMs;
    for (const file of files) {
      const { fileId } = file;
      if (!blocked.has(fileId)) continue;
      const holder = this.#holder(fileId);
      this.ledger.deny({ contentionId, ownerId, file }, holder, retryAtMs);
      this.#denied.push(deniedFile({ contentionId, ownerId, file }, holder, nowMs));
      const contention = {
        contentionId,
        fileId,
        ownerId: owner.ownerId,
        state: 'CONTENDED',
        retryAtMs,
      } as const;
      this.#found.contentions.set(contentionOf(ownerId, fileId), contention);
    }
    return { kind: 'answer', contentionId, state: 'CONTENDED' };
  }

  #halt(owner: Owner, { ownerId, files }: FileRequest, blocked: ReadonlySet<string>): Verdict {
    let first: string | undefined;
    for (const file of files) {
      const contention = this.#contention(owner, file.fileId);
      if (!contention || !blocked.has(file.fileId)) continue;
      const { contentionId } = contention;
      first ??= contentionId;
      this.ledger.halt({ contentionId, ownerId, file }, this.#holder(file.fileId), { actor: ownerId });
      this.#found.contentions.set(contentionOf(ownerId, file.fileId), { ...contention, state: 'HALTED' });
    }
    if (first === undefined) throw new Error('a request was halted without a contention');
    return { kind: 'answer', contentionId: first, state: 'HALTED' };
  }

  #holder(fileId: string): Holder {
    const holder = this.#found.files.get(fileId);
    if (!holder) throw new Error('a file is blocked by nobody');
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

/** Neither an owner's name nor a file's id has anything in it that ends it, so the fixed part comes first. */
const contentionOf = (ownerId: string, fileId: string): string => `${fileId} ${ownerId}`;

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
  blockerId: owner.ownerId,
  blocker: {
    ownerId: owner.ownerId,
    profile: owner.profile,
    acquiredAtMs,
    lastHeartbeatAtMs: owner.lastHeartbeatAtMs,
  },
});

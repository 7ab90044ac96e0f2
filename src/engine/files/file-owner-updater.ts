import { holderOf, isHeldBy } from '../../domain/access/holder.ts';
import { DomainError } from '../../domain/errors.ts';
import type { FileLease, FileRelease, FilesReleased, NotReleased } from '../../domain/files/file-lease.ts';
import { livenessOf, notAlive, type Owner, ownerNotFound } from '../../domain/files/file-owners.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { lockOwners, readClock } from '../../store/sql/files/owners.ts';
import { filesOfOwners, type Holder, readFiles, toFileLease } from '../../store/sql/files/rows.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import { FileChangeset } from './file-changeset.ts';
import { type GivenUp, giveUp, lendersBeside } from './file-returns.ts';

/** The calling owner and its lenders, as far as they are known; not each has a row. */
interface Locked {
  names: ReadonlySet<string>;
  owners: ReadonlyMap<string, Owner>;
}
/** The answer, to be read after the write; or lenders that must be locked before the work can be done. */
type Done<T> = (() => T) | { lenders: string[] };

/**
 * Updates of owners other than heartbeats: that they are active, have stopped, have ended, or release files.
 * Each update waits for its own owner's row only.
 */
export class FileOwnerUpdater {
  readonly #context: EngineContext;
  #open = 0;
  #closed = false;
  #onIdle: (() => void)[] = [];

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** The owner is active, and no longer stopped. */
  activity(ownerId: string, caller: Caller): Promise<Owner> {
    return this.#describe(ownerId, 'active', caller);
  }

  /** The owner has stopped. A repeated call keeps the first time. */
  stop(ownerId: string, caller: Caller): Promise<Owner> {
    return this.#describe(ownerId, 'stopped', caller);
  }

  /** Ends an owner. An owner that has ended already stays as it is. */
  end(ownerId: string, caller: Caller): Promise<{ owner: Owner; released: FileLease[] }> {
    return this.#update(ownerId, caller, async (sql, owner, ledger, locked) => {
      if (owner.state !== 'ALIVE') return () => ({ owner, released: [] });
      const cause = { actor: ownerId };
      const how = { state: 'RELEASED', reason: 'its owner ended', cause } as const;
      const given = (await filesOfOwners(sql, [ownerId])).map((file) => ({ file, how }));
      const lenders = lendersBeside(given, locked.names);
      if (lenders.length > 0) return { lenders };
      ledger.endOwner(ownerId, 'ENDED', cause);
      await giveUp(sql, ledger, given, locked.owners);
      return () => ({ owner: ledger.owners.get(ownerId) ?? owner, released: ledger.ended.map(toFileLease) });
    });
  }

  /** Releases files. Files that cannot be released are listed with a reason, and do not delay the others. */
  release(release: FileRelease, caller: Caller): Promise<FilesReleased> {
    const { ownerId, repository, files, reason } = release;
    return this.#update(ownerId, caller, async (sql, _owner, ledger, locked) => {
      const how = { state: 'RELEASED', reason, cause: { actor: ownerId } } as const;
      const isCommitted = reason === 'COMMITTED';
      const notReleased: NotReleased[] = [];
      const given: GivenUp[] = [];
      if (files === null) {
        for (const file of await filesOfOwners(sql, [ownerId]))
          if (repository === null || file.repository === repository) given.push({ file, how, isCommitted });
      } else {
        const held = await readFiles(
          sql,
          files.map(({ name }) => name.fileId),
        );
        for (const { name, fence } of files) {
          const { fileId, path } = name;
          const holder = held.get(fileId);
          ledger.rememberFile(ownerId, fileId);
          if (holder?.owner.ownerId !== ownerId) notReleased.push(notHeld(path, holder));
          else if (fence !== null && fence !== holder.fence)
            notReleased.push(staleFence(path, holder.fence, fence));
          else given.push({ file: { fileId, ownerId, loan: holder.loan }, how, isCommitted });
        }
      }
      const lenders = lendersBeside(given, locked.names);
      if (lenders.length > 0) return { lenders };
      await giveUp(sql, ledger, given, locked.owners);
      return () => ({ released: ledger.ended.map(toFileLease), notReleased });
    });
  }

  /** Settles when no update is running any more. */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#open > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  #describe(ownerId: string, kind: 'active' | 'stopped', caller: Caller): Promise<Owner> {
    return this.#update(ownerId, caller, async (_sql, owner, ledger) => {
      // An owner that became idle before this activity has given up its files. It is active now all the same.
      if (livenessOf(owner, ledger.nowMs) === 'dead' || owner.state !== 'ALIVE') throw notAlive(owner);
      ledger.touch({ ownerId, kind, born: false });
      const wasStopped = owner.stoppedAtMs !== null;
      if (wasStopped !== (kind === 'stopped'))
        ledger.addOwnerEvent(wasStopped ? 'OWNER_RESUMED' : 'OWNER_STOPPED', ownerId, { actor: ownerId });
      return () => ledger.owners.get(ownerId) ?? owner;
    });
  }

  /**
   * Runs `work` on the locked owner. If the owner or a lender is dead or idle, it is reaped first. If `work`
   * asks for lenders, it runs again with them locked too.
   */
  async #update<T>(
    ownerId: string,
    { principal, signal }: Caller,
    work: (sql: Sql, owner: Owner, ledger: FileChangeset, locked: Locked) => Promise<Done<T>>,
  ): Promise<T> {
    if (this.#closed) throw new DomainError('unavailable', 'the server is shutting down');
    const { database, outageMonitor, publisher, fileReaper } = this.#context;
    this.#open++;
    let names: ReadonlySet<string> = new Set([ownerId]);
    let mayReap = true;
    try {
      await outageMonitor.ensureFresh();
      for (;;) {
        const done = await database.transaction(async (sql) => {
          const owners = await lockOwners(sql, [...names], { wait: true, signal });
          const owner = owners.get(ownerId);
          if (!owner || owner.state === 'NEW' || !isHeldBy(owner.holder, holderOf(principal)))
            throw ownerNotFound(ownerId);
          const { nowMs } = await readClock(sql);
          const isDue = (one: Owner) => ['dead', 'idle'].includes(livenessOf(one, nowMs));
          if (mayReap && [...owners.values()].some(isDue)) return 'due';
          const ledger = new FileChangeset(nowMs);
          const answer = await work(sql, owner, ledger, { names, owners });
          if ('lenders' in answer) return answer;
          await ledger.write(sql);
          return { answer: answer(), effects: ledger.effects };
        }, signal);
        if (done === 'due') {
          await fileReaper.reap(names, signal);
          mayReap = false;
        } else if ('lenders' in done) {
          names = new Set([...names, ...done.lenders]);
          mayReap = true;
        } else {
          publisher.publish(done.effects);
          return done.answer;
        }
      }
    } finally {
      this.#open--;
      if (this.#open === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
    }
  }
}

const notHeld = (path: string, holder: Holder | null | undefined): NotReleased => ({
  path,
  code: 'not_held',
  detail: holder ? `it is held by ${holder.owner.ownerId}` : 'no owner holds it',
});

const staleFence = (path: string, now: string, given: string): NotReleased => ({
  path,
  code: 'stale_fence',
  detail: `its fence is ${now}, not ${given}`,
});

import { DomainError } from '../domain/errors.ts';
import type { FileLease, FileRelease, FilesReleased, NotReleased } from '../domain/file-lease.ts';
import { fateOf, notAlive, type Owner, ownerNotFound } from '../domain/file-owners.ts';
import type { Sql } from '../store/sql.ts';
import { contentionsOfOwners } from '../store/statements/file-contentions.ts';
import { lockOwners, readClock } from '../store/statements/file-owners.ts';
import { filesOfOwners, type Holder, readFiles, toFileLease } from '../store/statements/file-rows.ts';
import type { Caller, EngineContext } from './context.ts';
import { FileLedger } from './file-ledger.ts';

/**
 * What owners say of themselves beside that they live: that they are at work, have stopped, have ended, or give files
 * back. Each waits for its own owner's row and for no other's.
 */
export class FileOwnerChanger {
  readonly #context: EngineContext;
  #open = 0;
  #closed = false;
  #onIdle: (() => void)[] = [];

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** The owner is at work; one that had stopped has not. */
  activity(ownerId: string, caller: Caller): Promise<Owner> {
    return this.#show(ownerId, 'active', caller);
  }

  /** The owner has stopped. Said again, it counts from the first time. */
  stop(ownerId: string, caller: Caller): Promise<Owner> {
    return this.#show(ownerId, 'stopped', caller);
  }

  /** Ends an owner. One that is over already stays as it is. */
  end(ownerId: string, caller: Caller): Promise<{ owner: Owner; released: FileLease[] }> {
    return this.#change(ownerId, caller, async (sql, owner, ledger) => {
      if (owner.state !== 'ALIVE') return () => ({ owner, released: [] });
      const cause = { actor: ownerId };
      ledger.endOwner(ownerId, 'ENDED', cause);
      await ledger.endAllOf(
        sql,
        new Map([[ownerId, { state: 'RELEASED', reason: 'its owner ended', cause }]]),
      );
      for (const file of await contentionsOfOwners(sql, [ownerId])) {
        const { contentionId } = file;
        const why = { actor: ownerId, data: { reason: 'its owner ended' } };
        ledger.close({ contentionId, ownerId, file }, 'lapse', why);
      }
      return () => ({ owner: ledger.owners.get(ownerId) ?? owner, released: ledger.ended.map(toFileLease) });
    });
  }

  /** Gives files back. What cannot be given back is said for each, and holds up no other. */
  release(release: FileRelease, caller: Caller): Promise<FilesReleased> {
    const { ownerId, repository, files, reason } = release;
    return this.#change(ownerId, caller, async (sql, _owner, ledger) => {
      const cause = { actor: ownerId };
      const notReleased: NotReleased[] = [];
      const end = (fileId: string) => ledger.end({ fileId, ownerId, state: 'RELEASED', reason }, cause);
      if (files === null) {
        for (const file of await filesOfOwners(sql, [ownerId]))
          if (repository === null || file.repository === repository) end(file.fileId);
      } else {
        const held = await readFiles(
          sql,
          files.map(({ name }) => name.fileId),
        );
        for (const { name, fence } of files) {
          const problem = whyNotReleased(name.path, held.get(name.fileId), ownerId, fence);
          ledger.know(ownerId, name.fileId);
          if (problem) notReleased.push(problem);
          else end(name.fileId);
        }
      }
      return () => ({ released: ledger.ended.map(toFileLease), notReleased });
    });
  }

  /** Settles when nothing of it runs any more. */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#open > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  #show(ownerId: string, kind: 'active' | 'stopped', caller: Caller): Promise<Owner> {
    return this.#change(ownerId, caller, async (_sql, owner, ledger) => {
      // One that became idle before it was active again has given up its files; that it is active now is true, too.
      if (fateOf(owner, ledger.nowMs) === 'dead' || owner.state !== 'ALIVE') throw notAlive(owner);
      ledger.touch({ ownerId, kind, born: false });
      const wasStopped = owner.stoppedAtMs !== null;
      if (wasStopped !== (kind === 'stopped'))
        ledger.tellOfOwner(wasStopped ? 'OWNER_RESUMED' : 'OWNER_STOPPED', ownerId, { actor: ownerId });
      return () => ledger.owners.get(ownerId) ?? owner;
    });
  }

  /** Runs `work` on the locked owner. What was due before, as that it is dead or idle, happens before. */
  async #change<T>(
    ownerId: string,
    { signal }: Caller,
    work: (sql: Sql, owner: Owner, ledger: FileLedger) => Promise<() => T>,
  ): Promise<T> {
    if (this.#closed) throw new DomainError('unavailable', 'the server is shutting down');
    const { database, pulse, waker, fileReaper } = this.#context;
    this.#open++;
    try {
      await pulse.fresh();
      for (let mayReap = true; ; mayReap = false) {
        const done = await database.transaction(async (sql) => {
          const owner = (await lockOwners(sql, [ownerId], { wait: true, signal })).get(ownerId);
          if (!owner || owner.state === 'NEW') throw ownerNotFound(ownerId);
          const { nowMs } = await readClock(sql);
          const fate = fateOf(owner, nowMs);
          if (mayReap && (fate === 'dead' || fate === 'idle')) return undefined;
          const ledger = new FileLedger(nowMs);
          const answer = await work(sql, owner, ledger);
          await ledger.write(sql);
          return { answer: answer(), hasNews: ledger.hasNews };
        }, signal);
        if (done?.hasNews) waker.publishFiles();
        if (done) return done.answer;
        await fileReaper.reap([ownerId], signal);
      }
    } finally {
      this.#open--;
      if (this.#open === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
    }
  }
}

function whyNotReleased(
  path: string,
  holder: Holder | null | undefined,
  ownerId: string,
  fence: string | null,
): NotReleased | undefined {
  if (holder?.owner.ownerId !== ownerId) {
    const detail = holder ? `it is held by ${holder.owner.ownerId}` : 'nobody holds it';
    return { path, code: 'not_held', detail };
  }
  if (fence === null || fence === holder.fence) return undefined;
  return { path, code: 'stale_fence', detail: `its fence is ${holder.fence}, not ${fence}` };
}

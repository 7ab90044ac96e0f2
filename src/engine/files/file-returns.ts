import { heirOf } from '../../domain/files/file-lending.ts';
import type { Owner } from '../../domain/files/file-owners.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { type ContendedFile, contentionsOfOwners } from '../../store/sql/files/contentions.ts';
import type { HeldFile } from '../../store/sql/files/rows.ts';
import type { FileChangeset, OwnerEnd } from './file-changeset.ts';

/** A file that its locked owner gives up or loses. */
export interface GivenUp {
  file: Pick<HeldFile, 'fileId' | 'ownerId' | 'loan'>;
  how: OwnerEnd;
  /** The work on the file is committed: a borrowed file is then freed instead of returned. */
  isCommitted?: boolean;
}

/** The lenders of these files that are not locked yet. A lease can only return to a locked owner. */
export function lendersBeside(
  given: readonly Pick<GivenUp, 'file' | 'isCommitted'>[],
  locked: ReadonlySet<string>,
): string[] {
  const lenders = given.flatMap(({ file, isCommitted }) => (isCommitted ? [] : file.loan.lenders));
  return [...new Set(lenders)].filter((ownerId) => !locked.has(ownerId));
}

/**
 * Ends leases of locked owners. A borrowed file returns to its lender, which must be locked as well, with a
 * new fence; see `domain/files/file-lending.ts`. This closes a contention of the lender for the file, because
 * it has the file now.
 */
export async function giveUp(
  sql: Sql,
  ledger: FileChangeset,
  given: readonly GivenUp[],
  owners: ReadonlyMap<string, Owner>,
): Promise<void> {
  const lenders = lendersBeside(given, new Set());
  const open = new Map<string, ContendedFile>();
  if (lenders.length > 0)
    for (const each of await contentionsOfOwners(sql, lenders))
      open.set(`${each.ownerId} ${each.fileId}`, each);
  for (const { file, how, isCommitted } of given) {
    const { fileId, ownerId, loan } = file;
    const isHalted = (name: string) => open.get(`${name} ${fileId}`)?.state === 'HALTED';
    const heir = isCommitted ? undefined : heirOf(loan, owners, isHalted, ledger.nowMs);
    if (!heir) {
      ledger.end({ fileId, ownerId, state: how.state, reason: how.reason }, how.cause);
      continue;
    }
    const [from, to] = [owners.get(ownerId) as Owner, owners.get(heir.ownerId) as Owner];
    ledger.giveBack(fileId, from, to, heir.loan, how);
    const waiting = open.get(`${heir.ownerId} ${fileId}`);
    if (!waiting) continue;
    const name = { contentionId: waiting.contentionId, ownerId: heir.ownerId, file: waiting };
    ledger.close(name, 'grant', how.cause);
  }
}

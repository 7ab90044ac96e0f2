/**
 * Sub-agents: a sub-agent may borrow a file that its parent holds. The lease passes to it with a new fence; while it holds
 * the file, its siblings and its parent are denied like every other owner. When it gives the file up without a commit, the
 * lease returns to the owner that lent it.
 *
 * A sub-agent may lend to a sub-agent of its own, so a lease has a list of lenders. It returns to the last of them that is
 * still in the life in which it lent; where there is none, the file is free.
 */
import { livenessOf, type Owner } from './file-owners.ts';

/** Lenders of one lease at the most. */
export const lendersMax = 16;

/** A lease as far as it is borrowed. */
export interface Loan {
  /** Who lent it, the first first; empty where the lease is not borrowed. */
  lenders: readonly string[];
  /** When the first of them lent it. */
  lentAtMs: number | null;
}

export const notLent: Loan = { lenders: [], lentAtMs: null };

/** Whether an owner may borrow what another holds: it is a sub-agent of that owner, and has not lent the file itself. */
export function mayBorrow(
  borrower: { ownerId: string; parentOwnerId: string | null },
  holderId: string,
  { lenders }: Loan,
): boolean {
  if (borrower.parentOwnerId !== holderId || lenders.length >= lendersMax) return false;
  return !lenders.includes(borrower.ownerId);
}

/** How a lease is borrowed once its holder has lent it. */
export const extendLoan = (holderId: string, { lenders, lentAtMs }: Loan, nowMs: number): Loan => ({
  lenders: [...lenders, holderId],
  lentAtMs: lentAtMs ?? nowMs,
});

/** Who gets a borrowed lease back, and how it is borrowed then. Nothing where the file comes free. */
export function heirOf(
  { lenders, lentAtMs }: Loan,
  owners: ReadonlyMap<string, Owner>,
  isHalted: (ownerId: string) => boolean,
  nowMs: number,
): { ownerId: string; loan: Loan } | undefined {
  if (lentAtMs === null) return undefined;
  for (let at = lenders.length - 1; at >= 0; at--) {
    const owner = owners.get(lenders[at] as string);
    if (!owner || livenessOf(owner, nowMs) !== 'alive' || owner.bornAtMs > lentAtMs) continue;
    // Only an instruction lets an owner have a file that it has halted for.
    if (isHalted(owner.ownerId)) continue;
    return { ownerId: owner.ownerId, loan: at > 0 ? { lenders: lenders.slice(0, at), lentAtMs } : notLent };
  }
  return undefined;
}

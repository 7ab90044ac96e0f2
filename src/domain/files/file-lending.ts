/**
 * Sub-agents: a sub-agent may borrow a file that its parent holds.
 * - The lease passes to the sub-agent with a new fence.
 * - While the sub-agent holds the file, its siblings and its parent are denied like every other owner.
 * - When the sub-agent releases the file without a commit, the lease returns to the owner that lent it.
 *
 * A sub-agent may lend to a sub-agent of its own, so a lease has a list of lenders. The lease returns to the
 * last lender that is still in the life in which it lent. Where there is none, the file becomes free.
 */
import { livenessOf, type Owner } from './file-owners.ts';

/** The most lenders of one lease. */
export const lendersMax = 16;

/** The loan of a lease. */
export interface Loan {
  /** The lenders, in the order in which they lent; empty where the lease is not borrowed. */
  lenders: readonly string[];
  /** When the first lender lent it. */
  lentAtMs: number | null;
}

export const notLent: Loan = { lenders: [], lentAtMs: null };

/**
 * Whether an owner may borrow from the holder: it is a sub-agent of the holder, and has not lent the file
 * itself.
 */
export function mayBorrow(
  borrower: { ownerId: string; parentOwnerId: string | null },
  holderId: string,
  { lenders }: Loan,
): boolean {
  if (borrower.parentOwnerId !== holderId || lenders.length >= lendersMax) return false;
  return !lenders.includes(borrower.ownerId);
}

/** The loan after the holder has lent the lease too. */
export const extendLoan = (holderId: string, { lenders, lentAtMs }: Loan, nowMs: number): Loan => ({
  lenders: [...lenders, holderId],
  lentAtMs: lentAtMs ?? nowMs,
});

/**
 * The owner to which a borrowed lease returns, and the loan that remains. Undefined where the file becomes
 * free.
 */
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
    // Only an instruction grants an owner a file for which it is halted.
    if (isHalted(owner.ownerId)) continue;
    return { ownerId: owner.ownerId, loan: at > 0 ? { lenders: lenders.slice(0, at), lentAtMs } : notLent };
  }
  return undefined;
}

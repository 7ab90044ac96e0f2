/**
 * The holder of what a caller takes: a number that stands for its credential. It is stored beside the worker
 * or the owner, so that another credential that may use the same name cannot act in its place.
 *
 * Two credentials have the same number by chance in one of four billion cases. They must also be allowed the
 * same name to act for each other then.
 */
import { createHash } from 'node:crypto';
import type { Principal } from './principal.ts';

/** Null without authentication, and for what was taken without it. */
export type Holder = number | null;

const known = new WeakMap<Principal, number>();

/** The lineage of a key outlives its rotation, and so does the number. */
export function holderOf(principal: Principal): Holder {
  const { kind, holder } = principal;
  if (kind === 'local' || holder === null) return null;
  let number = known.get(principal);
  if (number === undefined) {
    number = createHash('sha256').update(holder).digest().readInt32BE(0);
    known.set(principal, number);
  }
  return number;
}

/** What was taken without authentication has no holder, and only the name counts. */
export const isHeldBy = (held: Holder, caller: Holder): boolean =>
  held === null || caller === null || held === caller;

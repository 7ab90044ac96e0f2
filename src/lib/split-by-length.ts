/** Splits one flat list into parts of the given lengths; the last parts may be shorter, or empty. */
export function splitByLength<T>(items: readonly T[], shares: readonly number[]): T[][] {
  let dealt = 0;
  return shares.map((share) => {
    const hand = items.slice(dealt, dealt + share);
    dealt += share;
    return hand;
  });
}

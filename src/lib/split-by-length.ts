/** Deals one flat list out to calls that asked for so many each; the last ones may get fewer, or none. */
export function splitByLength<T>(items: readonly T[], shares: readonly number[]): T[][] {
  let dealt = 0;
  return shares.map((share) => {
    const hand = items.slice(dealt, dealt + share);
    dealt += share;
    return hand;
  });
}

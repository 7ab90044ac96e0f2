/** Splits one flat list into parts of the given lengths; the last parts may be shorter, or empty. */
export function splitByLength<T>(items: readonly T[], lengths: readonly number[]): T[][] {
  let start = 0;
  return lengths.map((length) => {
    const part = items.slice(start, start + length);
    start += length;
    return part;
  });
}

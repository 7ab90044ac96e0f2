const partsOf = (version: string): number[] => version.split('.').map(Number);

/** Whether version `a`, such as 0.2.10, comes before version `b`. Both have three numbers. */
export function isOlder(a: string, b: string): boolean {
  const [left, right] = [partsOf(a), partsOf(b)];
  for (const [i, part] of left.entries()) {
    const other = right[i] ?? 0;
    if (part !== other) return part < other;
  }
  return false;
}

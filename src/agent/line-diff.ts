/** Unchanged lines shown around a change. */
const around = 3;

/** The changes of a text by line: `-` is removed, `+` is added, with some unchanged lines around them. */
export function lineDiff(before: string, after: string): string {
  const lines = changes(linesOf(before), linesOf(after));
  const isNear = (at: number) =>
    lines.slice(Math.max(0, at - around), at + around + 1).some((line) => !line.startsWith(' '));
  const shown = lines.map((line, at) => (isNear(at) ? line : undefined));
  return shown
    .flatMap((line, at) => (line === undefined ? (shown[at - 1] === undefined ? [] : ['  …']) : [line]))
    .join('\n');
}

const linesOf = (text: string): string[] => (text === '' ? [] : text.replace(/\n$/, '').split('\n'));

/** Keeps the longest common subsequence. Suitable for texts of some thousand lines. */
function changes(before: readonly string[], after: readonly string[]): string[] {
  const width = after.length + 1;
  const common = new Uint32Array((before.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i * width + j] =
        before[i] === after[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: string[] = [];
  for (let i = 0, j = 0; i < before.length || j < after.length; ) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push(`  ${before[i]}`);
      i++;
      j++;
    } else if (j >= after.length || (i < before.length && at(i + 1, j) >= at(i, j + 1))) {
      lines.push(`- ${before[i]}`);
      i++;
    } else {
      lines.push(`+ ${after[j]}`);
      j++;
    }
  }
  return lines;
}

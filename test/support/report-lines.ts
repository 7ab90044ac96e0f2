/** The lines of a report by which its parts are found again in a long log. */

/** Before the failures. */
export const failuresFollow = 'failures:';

/** The last of all. */
export const countsLine = (passed: number, failed: number): string => `${passed} passed, ${failed} failed`;
const countsPattern = /^(\d+) passed, (\d+) failed$/gm;

/** What a run says of its failures, from the first one on. */
export function failuresIn(output: string): string {
  const start = output.lastIndexOf(`\n${failuresFollow}\n`);
  return start < 0 ? '' : output.slice(start);
}

/** What a run says of itself at its end; one that says nothing has failed. */
export function countIn(output: string): { passed: number; failed: number } {
  const counts = [...output.matchAll(countsPattern)].at(-1);
  return counts ? { passed: Number(counts[1]), failed: Number(counts[2]) } : { passed: 0, failed: 1 };
}

/** The 'not run' lines of several runs as one: each program once, with all that was left out for want of it. */
export function notRunIn(outputs: readonly string[]): string | undefined {
  const titles = new Map<string, Set<string>>();
  for (const output of outputs) {
    for (const [, rest = ''] of output.matchAll(/^not run: (.+)$/gm)) {
      for (const [, program = '', list = ''] of rest.matchAll(/(\w+) \((.*?)\)(?:; |$)/g)) {
        const known = titles.get(program) ?? new Set();
        for (const title of list.split(', ')) known.add(title);
        titles.set(program, known);
      }
    }
  }
  if (titles.size === 0) return undefined;
  return `not run: ${[...titles].map(([program, list]) => `${program} (${[...list].join(', ')})`).join('; ')}`;
}

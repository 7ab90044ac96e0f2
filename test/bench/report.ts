import type { Figure } from './scenario.ts';
import { median } from './stats.ts';

/** Numbers as people read them: no digits that mean nothing. */
export function number(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** The least and the greatest, where there is more than one. */
export const spread = (values: readonly number[]): string =>
  values.length > 1 ? `${number(Math.min(...values))}–${number(Math.max(...values))}` : '';

export function isMet({ values, goal }: Figure): boolean | undefined {
  if (!goal) return undefined;
  return 'atLeast' in goal ? median(values) >= goal.atLeast : median(values) < goal.below;
}

function goalWords(figure: Figure): string {
  const { goal } = figure;
  if (!goal) return '';
  const words = 'atLeast' in goal ? `at least ${number(goal.atLeast)}` : `below ${number(goal.below)}`;
  return `  goal ${words}: ${isMet(figure) ? 'met' : 'MISSED'}`;
}

/** A figure as one line, and what lies behind it as a second. */
export function figureText(figure: Figure): string {
  const { name, unit, values, latency, cpu, failure } = figure;
  const range = values.length > 1 ? ` (${spread(values)})` : '';
  const lines = [
    `  ${name.padEnd(44)}${number(median(values)).padStart(9)} ${unit}${range}${goalWords(figure)}`,
  ];
  const details: string[] = [];
  if (latency) details.push(`p50 ${number(latency.p50Ms)} ms, p99 ${number(latency.p99Ms)} ms`);
  if (cpu) {
    const { server, database, load, cores, otherCores } = cpu;
    const shares = Object.entries({ server, database, load })
      .filter((share): share is [string, number] => share[1] !== undefined)
      .map(([who, us]) => `${who} ${number(us)}`);
    details.push(
      `µs of processor each: ${shares.join(', ')}; ${number(cores)} cores busy, ${number(otherCores)} with other things`,
    );
  }
  if (details.length > 0) lines.push(`    ${details.join('; ')}`);
  if (failure !== undefined) lines.push(`    FAILED: ${failure}`);
  return lines.join('\n');
}

/** A figure for programs. */
export const figureRecord = (scenario: string, engine: string, figure: Figure) => ({
  scenario,
  engine,
  ...figure,
  median: median(figure.values),
  met: isMet(figure),
});

export type FigureRecord = ReturnType<typeof figureRecord>;

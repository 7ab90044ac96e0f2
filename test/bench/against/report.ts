/** Figures of two trees, for people. */
import { number } from '../report.ts';
import { table } from '../summary.ts';
import type { Comparison } from './duel.ts';
import type { Estimate } from './statistics.ts';

/** Two digits would hide what is looked for. */
const ratio = (value: number): string => value.toFixed(3);

const interval = ({ interval }: Estimate): string =>
  interval ? `${ratio(interval.low)}–${ratio(interval.high)}` : 'too few pairs';

/** A figure as one line, and its processor time as a second. */
export function comparisonText(comparison: Comparison): string {
  const { name, unit, medians, processor, verdict, bound, failure } = comparison;
  const rates = `${number(medians.own)} against ${number(medians.other)} ${unit}`;
  const lines = [
    `  ${name}: ${rates}, ratio ${ratio(comparison.ratio.median)} (${interval(comparison.ratio)}), bound ${bound}: ${verdict}`,
  ];
  if (processor)
    lines.push(
      `    µs of processor each, server and database: ${number(processor.medians.own)} against ${number(
        processor.medians.other,
      )}, ratio ${ratio(processor.ratio.median)} (${interval(processor.ratio)})`,
      `    of which the server: ${number(processor.server.own)} against ${number(processor.server.other)}`,
    );
  if (failure !== undefined) lines.push(`    FAILED: ${failure}`);
  return lines.join('\n');
}

/** All figures as one table. */
export function comparisonsText(comparisons: readonly Comparison[]): string {
  if (comparisons.length === 0) return '';
  const rows = comparisons.map(
    ({ scenario, name, medians, unit, ratio: of, processor, verdict, failure }) => [
      scenario,
      name,
      number(medians.own),
      number(medians.other),
      unit,
      ratio(of.median),
      interval(of),
      processor ? number(processor.medians.own) : '',
      processor ? number(processor.medians.other) : '',
      processor ? ratio(processor.ratio.median) : '',
      processor ? interval(processor.ratio) : '',
      failure === undefined ? verdict : 'FAILED',
    ],
  );
  const heads = ['this', 'against', 'unit', 'ratio', '95 %'];
  const processorHeads = ['µs, this', 'against', 'ratio', '95 %'];
  return table(['scenario', 'what', ...heads, ...processorHeads, 'verdict'], rows, [2, 3, 7, 8]);
}

/**
 * Tables that fit the terminal: wide columns are shortened first, then the least important columns are
 * omitted.
 */
import { cell, lineWidth } from './output.ts';

export interface Column<Row> {
  heading: string;
  of(row: Row): unknown;
  /** The column may be shortened to this many characters. */
  atLeast?: number;
  /**
   * Where not all columns fit, those with the highest rank are omitted first. A column without a rank always
   * stays.
   */
  rank?: number;
}

const gap = 2;

export function fittedTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width = lineWidth(),
): string {
  const cells = columns.map((column) => ({
    ...column,
    texts: [column.heading, ...rows.map((row) => cell(column.of(row)))],
  }));
  const shown = cells.map((column) => ({
    ...column,
    width: Math.max(...column.texts.map(({ length }) => length)),
  }));
  while (leastWidth(shown) > width) {
    const dropped = shown.reduce((worst, one) => ((one.rank ?? 0) > (worst.rank ?? 0) ? one : worst));
    if (dropped.rank === undefined) break;
    shown.splice(shown.indexOf(dropped), 1);
  }
  for (let excess = totalWidth(shown) - width; excess > 0; excess--) {
    const slack = ({ width: now, atLeast = now }: { width: number; atLeast?: number }) => now - atLeast;
    const widest = shown.reduce((most, one) => (slack(one) > slack(most) ? one : most));
    if (slack(widest) <= 0) break;
    widest.width--;
  }
  return ['', ...rows]
    .map((_, i) =>
      shown
        .map(({ texts, width: columnWidth }) => shortened(texts[i] ?? '', columnWidth).padEnd(columnWidth))
        .join(' '.repeat(gap))
        .trimEnd(),
    )
    .map((line) => shortened(line, width))
    .join('\n');
}

const totalWidth = (columns: readonly { width: number }[]): number =>
  columns.reduce((sum, { width }) => sum + width + gap, -gap);

const leastWidth = (columns: readonly { width: number; atLeast?: number }[]): number =>
  totalWidth(columns.map(({ width, atLeast }) => ({ width: Math.min(width, atLeast ?? width) })));

const shortened = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1)).toWellFormed()}…`;

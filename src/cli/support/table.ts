/**
 * Tables and lists that fit the terminal. A table that is too wide omits its least important columns, wraps
 * its sentences and shortens its wide columns. Ids are never shortened, because users paste them.
 */
import { columnsOf, padStartTo, padTo, shortened, wrapped } from '../../lib/terminal-layout.ts';
import { painted, type Style } from './color.ts';
import { blank, cell, lineWidth } from './output.ts';

export interface Column<Row> {
  heading: string;
  of(row: Row): unknown;
  /** The column may be shortened to this many characters, or wrapped at this width. */
  atLeast?: number;
  /** Text that does not fit continues on the next line, in the same column. */
  wraps?: true;
  /**
   * Where not all columns fit, those with the highest rank are omitted first. A column without a rank always
   * stays.
   */
  rank?: number;
  style?(row: Row): Style | undefined;
}

interface TableOptions {
  width?: number;
  /** Spaces before each line. */
  indent?: number;
  /** Whether the headings are shown. */
  headings?: boolean;
}

/** Without a terminal, a longer cell overflows its line and does not widen the others: paths may be long. */
const padMax = 100;

interface Cells<Row> extends Column<Row> {
  texts: string[];
  width: number;
  isNumeric: boolean;
}

const gap = 2;

export function fittedTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  { width = lineWidth(), indent = 0, headings = true }: TableOptions = {},
): string {
  const shown = columns.map((column) => cellsOf(column, rows, headings));
  omitColumns(shown, width - indent);
  narrowColumns(shown, width - indent);
  if (width === Number.POSITIVE_INFINITY)
    for (const column of shown) column.width = Math.min(column.width, padMax);
  const lines = [
    ...(headings ? linesOf(shown, width, (column) => [column.heading, 'bold']) : []),
    ...rows.flatMap((row, i) =>
      linesOf(shown, width, (column) => [column.texts[i] ?? '', column.style?.(row)]),
    ),
  ];
  return lines.map((line) => `${' '.repeat(indent)}${line}`).join('\n');
}

function cellsOf<Row>(column: Column<Row>, rows: readonly Row[], headings: boolean): Cells<Row> {
  const texts = rows.map((row) => textOf(column.of(row)));
  const all = headings ? [column.heading, ...texts] : texts;
  const isNumeric =
    texts.some((text) => /\d/.test(text)) && texts.every((text) => /^[\d,]*[-+]?$/.test(text));
  return { ...column, texts, isNumeric, width: Math.max(0, ...all.map(columnsOf)) };
}

const textOf = (value: unknown): string => (value === blank ? '' : cell(value));

function omitColumns<Row>(shown: Cells<Row>[], width: number): void {
  while (leastWidth(shown) > width) {
    const dropped = shown.reduce((worst, one) => ((one.rank ?? 0) > (worst.rank ?? 0) ? one : worst));
    if (dropped.rank === undefined && shown.length === 1) break;
    shown.splice(dropped.rank === undefined ? -1 : shown.indexOf(dropped), 1);
  }
}

/** Takes from the column that can spare most. */
function narrowColumns<Row>(shown: Cells<Row>[], width: number): void {
  const slack = ({ width: now, atLeast = now }: Cells<Row>) => now - atLeast;
  for (let excess = totalWidth(shown) - width; excess > 0; excess--) {
    const widest = shown.reduce((most, one) => (slack(one) > slack(most) ? one : most));
    if (slack(widest) <= 0) break;
    widest.width--;
  }
}

/** The lines of one row: more than one where a column wraps. */
function linesOf<Row>(
  shown: readonly Cells<Row>[],
  tableWidth: number,
  of: (column: Cells<Row>) => readonly [text: string, style: Style | undefined],
): string[] {
  const cells = shown.map((column) => {
    const [text, style] = of(column);
    const width = tableWidth === Number.POSITIVE_INFINITY ? tableWidth : column.width;
    const lines = column.wraps ? wrapped(text, width) : [shortened(text, width)];
    return { column, style, lines };
  });
  const height = Math.max(...cells.map(({ lines }) => lines.length));
  return Array.from({ length: height }, (_, i) => {
    const end = cells.findLastIndex(({ lines }) => (lines[i] ?? '') !== '');
    return cells
      .slice(0, end + 1)
      .map(({ column, style, lines }, j) => {
        const text = lines[i] ?? '';
        // Pads after it paints: the width of a text leaves its control sequences out.
        const colored = painted(text, style);
        if (column.isNumeric) return padStartTo(colored, column.width);
        return j === end ? colored : padTo(colored, column.width);
      })
      .join(' '.repeat(gap));
  });
}

const totalWidth = (columns: readonly { width: number }[]): number =>
  columns.reduce((sum, { width }) => sum + width + gap, -gap);

const leastWidth = (columns: readonly { width: number; atLeast?: number }[]): number =>
  totalWidth(columns.map(({ width, atLeast }) => ({ width: Math.min(width, atLeast ?? width) })));

/** Names and their values, one per line; a long value continues below its beginning. */
export const listing = (
  entries: readonly (readonly [name: string, value: unknown, style?: Style])[],
  options: Omit<TableOptions, 'headings'> = {},
): string =>
  fittedTable(
    [
      { heading: '', of: ([name]) => name, style: () => 'dim' },
      { heading: '', of: ([, value]) => value, style: ([, , style]) => style, wraps: true, atLeast: 20 },
    ],
    entries,
    { ...options, headings: false },
  );

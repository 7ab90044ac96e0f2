/** What a run came to, for people as tables, and for programs. */
import { type Contender, type Contest, type Ratio, ratios } from './contest.ts';
import { type FigureRecord, number, spread } from './report.ts';
import { median } from './stats.ts';

export interface Summary {
  records: readonly FigureRecord[];
  contests: readonly Contest[];
}

/** Every figure with its median, then each contest with what ours are to everybody else. */
export function summaryText({ records, contests }: Summary): string {
  return [figuresText(records), ...contests.flatMap(contestText)].filter((text) => text !== '').join('\n\n');
}

function figuresText(records: readonly FigureRecord[]): string {
  const rows = records.map((record) => [
    record.scenario,
    record.engine,
    record.name,
    number(record.median),
    spread(record.values),
    record.unit,
    record.met === undefined ? '' : record.met ? 'met' : 'MISSED',
  ]);
  return rows.length === 0
    ? ''
    : table(['scenario', 'on', 'what', 'median', 'least–most', 'unit', 'goal'], rows, [3]);
}

/** One that had nobody beside it has been told of among the figures. */
function contestText(contest: Contest): string[] {
  const { name, unit, contenders } = contest;
  const ours = contenders.filter(({ side }) => side === 'ours');
  if (ours.length === 0 || contenders.length === ours.length) return [];
  const found = ratios(contest);
  const row = (one: Contender) => [
    one.name,
    number(median(one.rates)),
    spread(one.rates),
    ...ours.map((our) => ratioText(found.find(({ ours, to }) => ours === our.name && to === one.name))),
  ];
  // Columns are short, so who they are of is said below.
  const letters = ours.map((_, i) => String.fromCharCode(65 + i));
  const heads = [name, unit, 'least–most', ...letters.map((letter) => `${letter} to it`)];
  const legend = ours.map((one, i) => `${letters[i]}: ${one.name}`);
  return [[table(heads, contenders.map(row), [1]), ...legend].join('\n')];
}

function ratioText(found: Ratio | undefined): string {
  if (!found) return '';
  const range = spread(found.values);
  return `${number(median(found.values))}${range === '' ? '' : ` (${range})`}`;
}

/** Columns as wide as what is in them; those that are named are numbers and end on the right. */
export function table(
  heads: readonly string[],
  rows: readonly (readonly string[])[],
  numbers: readonly number[],
): string {
  const widths = heads.map((head, i) => Math.max(head.length, ...rows.map((row) => (row[i] ?? '').length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => (numbers.includes(i) ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join('  ')
      .trimEnd();
  return [line(heads), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n');
}

/** The ratios of all contests, for programs. */
export const ratioRecords = (contests: readonly Contest[]) =>
  contests.flatMap((contest) =>
    ratios(contest).map((one) => ({ contest: contest.name, ...one, median: median(one.values) })),
  );

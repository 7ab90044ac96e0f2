/** A list of names under headings, how two of them differ, and how the one that is kept is brought up to date. */
import { readFileSync, writeFileSync } from 'node:fs';

/** Lines under headings. A line is a name, or `name = value`. */
export type NameList = Readonly<Record<string, readonly string[]>>;

/** The list that is kept. */
export const publicNamesFile = new URL('../public-names.json', import.meta.url);

export interface Difference {
  section: string;
  name: string;
  /** The line that is kept; undefined where the name is new. */
  before: string | undefined;
  /** The line of now; undefined where the name is gone. */
  after: string | undefined;
}

export function differences(kept: NameList, now: NameList): Difference[] {
  const sections = new Set([...Object.keys(kept), ...Object.keys(now)]);
  return [...sections].flatMap((section) => {
    const before = byName(kept[section] ?? []);
    const after = byName(now[section] ?? []);
    return [...new Set([...before.keys(), ...after.keys()])].flatMap((name) => {
      const difference = { section, name, before: before.get(name), after: after.get(name) };
      return difference.before === difference.after ? [] : [difference];
    });
  });
}

const byName = (lines: readonly string[]): Map<string, string> =>
  new Map(lines.map((line) => [line.split(' = ', 1)[0] ?? line, line]));

/** What a difference is, and what to do about it. */
export function sentenceOf({ section, name, before, after }: Difference): string {
  if (before === undefined) return `${section}: ${after} is new; run npm run public-names to add it`;
  const onPurpose = `if this is on purpose, run npm run public-names -- --remove '${name}' and tell users in CHANGELOG.md`;
  const what = after === undefined ? 'was removed' : `was changed to ${after}`;
  return `${section}: ${before} ${what}; ${onPurpose}`;
}

/** One name a line, in order, so that a change of the file shows each name by itself. */
export function textOf(list: NameList): string {
  const sections = Object.entries(list).sort(([a], [b]) => (a < b ? -1 : 1));
  const sorted = sections.map(([section, lines]) => [section, [...new Set(lines)].sort()]);
  return `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`;
}

export const readNames = (file: URL): NameList => JSON.parse(readFileSync(file, 'utf8')) as NameList;

export interface Update {
  /** Why nothing was written. */
  problems: string[];
  /** How many names were added, changed and removed. */
  written: number;
}

/** Adds what is new. A name goes, or changes, only where it is one of the removals. */
export function updateNames(file: URL, now: NameList, removals: readonly string[]): Update {
  const all = differences(readNames(file), now);
  const lost = all.filter(({ before }) => before !== undefined);
  const problems = [
    ...lost.filter(({ name }) => !removals.includes(name)).map(sentenceOf),
    ...removals
      .filter((removal) => !lost.some(({ name }) => name === removal))
      .map((removal) => `'${removal}' is neither removed nor changed`),
  ];
  if (problems.length > 0) return { problems, written: 0 };
  writeFileSync(file, textOf(now));
  return { problems, written: all.length };
}

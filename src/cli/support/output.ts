/** Output of the operator's commands: tables and lists for people, one JSON document for scripts. */
import { span } from '../../domain/time.ts';
import { inLines } from '../../lib/terminal-text.ts';

/**
 * Prints, and exits normally if the reader has closed the pipe, as `head` does. Only for commands that change
 * nothing.
 */
export function print(text: string): void {
  draw(inLines(text));
}

/** The same for a text with terminal control sequences, in which all foreign text has been sanitized. */
export function draw(text: string): void {
  write(text, () => process.exit(process.exitCode ?? 0));
}

export const printJson = (value: unknown): void => print(JSON.stringify(value));

/**
 * Prints what a command does or has done. If the reader has closed the pipe, the command continues and exits
 * as usual.
 */
export function printNote(text: string): void {
  write(inLines(text), () => {});
}

let whenUnread: (() => void) | undefined;

function write(text: string, unread: () => void): void {
  if (whenUnread === undefined) {
    process.stdout.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      whenUnread?.();
    });
  }
  whenUnread = unread;
  process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
}

/** Removes characters from other clients that a terminal would obey. */
export const plain = (text: string): string =>
  text.replaceAll(/\p{Cc}+/gu, ' ').replaceAll(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '');

/** A table cell; an empty value becomes a dash. */
export const cell = (value: unknown): string => {
  if (value === null || value === undefined || value === '') return '-';
  return plain(typeof value === 'object' ? JSON.stringify(value) : String(value));
};

/** A time in UTC to the second, with its distance from now. */
export function when(time: string | null | undefined, nowMs = Date.now()): string {
  if (!time) return '-';
  return `${stamp(time)} (${age(time, nowMs)})`;
}

export const stamp = (time: string): string => `${time.slice(0, 10)} ${time.slice(11, 19)}Z`;

export function age(time: string, nowMs = Date.now()): string {
  const ms = nowMs - Date.parse(time);
  const words = span(Math.abs(ms)).replace(' ', '');
  return ms >= 0 ? `${words} ago` : `in ${words}`;
}

/** The narrowest useful line; a narrower terminal wraps it. */
const widthMin = 40;

/**
 * The width of lines: the terminal's, or unlimited without a terminal. A terminal with 0 columns, as in CI,
 * does not know its width.
 */
export const lineWidth = (
  { isTTY, columns }: { isTTY?: boolean; columns?: number } = process.stdout,
): number => (isTTY && columns ? Math.max(columns, widthMin) : Number.POSITIVE_INFINITY);

const cut = (line: string, width: number): string =>
  line.length <= width ? line : `${line.slice(0, Math.max(0, width - 1)).toWellFormed()}…`;

/** Lines below a heading, each column as wide as its widest cell. */
export function table(
  heading: readonly string[],
  rows: readonly (readonly unknown[])[],
  width = lineWidth(),
): string {
  const all = [heading, ...rows.map((row) => row.map(cell))];
  const widths = heading.map((_, i) => Math.max(...all.map((row) => row[i]?.length ?? 0)));
  return all
    .map((row) => {
      const line = row.map((text, i) => text.padEnd(widths[i] ?? 0)).join('  ');
      return cut(line.trimEnd(), width);
    })
    .join('\n');
}

/** Names and their values, one per line. */
export function listing(
  entries: readonly (readonly [name: string, value: unknown])[],
  width = lineWidth(),
): string {
  const widest = Math.max(...entries.map(([name]) => name.length));
  return entries.map(([name, value]) => cut(`${name.padEnd(widest)}  ${cell(value)}`, width)).join('\n');
}

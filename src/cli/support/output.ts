/** Output of the operator's commands: tables and lists for people, one JSON document for scripts. */
import { span } from '../../domain/time.ts';
import { wrapped } from '../../lib/terminal-layout.ts';
import { inLines } from '../../lib/terminal-text.ts';
import { betweenColors, usesColor } from './color.ts';

/**
 * Prints, and exits normally if the reader has closed the pipe, as `head` does. Only for commands that change
 * nothing.
 */
export function print(text: string): void {
  draw(safe(text));
}

/** Keeps the colours of this program, and makes all other control characters visible. */
export const safe = (text: string): string => (usesColor() ? betweenColors(text, inLines) : inLines(text));

/** The same for a text with terminal control sequences, in which all foreign text has been sanitized. */
export function draw(text: string): void {
  write(text, () => process.exit(process.exitCode ?? 0));
}

/** Prints one line of JSON, without colours. */
export const printJson = (value: unknown): void => draw(inLines(JSON.stringify(value)));

/**
 * Prints what a command does or has done. If the reader has closed the pipe, the command continues and exits
 * as usual.
 */
export function printNote(text: string): void {
  write(inLines(text), () => {});
}

/** Prints the help of a command, whose lines fit a terminal of 80 columns, and wrap on a narrower one. */
export const printHelp = (text: string): void => print(paragraph(text));

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

/** A table cell without text, where a dash would look like a value. */
export const blank = Symbol('blank');

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

/** `2026-01-02 03:04:05`, in UTC. */
export const stamp = (time: string): string => `${time.slice(0, 10)} ${time.slice(11, 19)}`;

/** `30 s ago`, `in 3 min 20 s`. */
export function age(time: string, nowMs = Date.now()): string {
  const ms = nowMs - Date.parse(time);
  return ms >= 0 ? `${span(ms)} ago` : `in ${span(-ms)}`;
}

/** A sentence of the server, with its times as commands print them. */
export const sentence = (text: string): string =>
  plain(text).replaceAll(/\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z/g, '$1 $2');

/** The narrowest useful line; a narrower terminal wraps it. */
const widthMin = 40;

/**
 * The width of lines: the terminal's, or unlimited without a terminal. A terminal with 0 columns, as in CI,
 * does not know its width.
 */
export const lineWidth = (
  { isTTY, columns }: { isTTY?: boolean; columns?: number } = process.stdout,
): number => (isTTY && columns ? Math.max(columns, widthMin) : Number.POSITIVE_INFINITY);

/** A text in lines that fit. A line that goes on is indented as far as its first word, or as its value. */
export const paragraph = (text: string, width = lineWidth()): string =>
  text
    .split('\n')
    .flatMap((line) => {
      const [value = ''] = /^\s*(?:\S+(?: \S+)* {2,}(?=\S))?/.exec(line) ?? [];
      const [start = ''] = /^\s*/.exec(line) ?? [];
      const indent = value.length < width / 2 ? value : start;
      const [first = '', ...rest] = wrapped(line.slice(indent.length), width - indent.length);
      return [`${indent}${first}`, ...rest.map((more) => `${' '.repeat(indent.length)}${more}`)];
    })
    .join('\n');

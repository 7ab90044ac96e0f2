/** Lays out text for a terminal: how wide it is, where it breaks, and how it is shortened. */
import { stripVTControlCharacters } from 'node:util';

/** Characters that take two columns: emoji, and the scripts and full-width forms of East Asia. */
const scripts = String.raw`\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}`;
const fullWidth = String.raw`\u3000-\u303e\uff01-\uff60\uffe0-\uffe6`;
const wide = new RegExp(String.raw`[\p{Emoji_Presentation}${scripts}${fullWidth}]`, 'u');
/** Characters that take none: combining marks, joiners and variation selectors. */
const narrow = /[\p{Mn}\p{Me}\p{Cf}]/u;
const printableAscii = /^[\x20-\x7e]*$/;

/** The columns that a text takes on a terminal. Control sequences take none. */
export function columnsOf(text: string): number {
  if (printableAscii.test(text)) return text.length;
  let columns = 0;
  for (const character of stripVTControlCharacters(text)) {
    if (wide.test(character)) columns += 2;
    else if (!narrow.test(character)) columns += 1;
  }
  return columns;
}

export const padTo = (text: string, columns: number): string =>
  text + ' '.repeat(Math.max(0, columns - columnsOf(text)));

export const padStartTo = (text: string, columns: number): string =>
  ' '.repeat(Math.max(0, columns - columnsOf(text))) + text;

/** The text, or as much of it as fits, with an ellipsis. */
export function shortened(text: string, columns: number): string {
  if (columnsOf(text) <= columns) return text;
  return `${splitAt(text, Math.max(0, columns - 1))[0]}…`;
}

/**
 * The lines of a text that is broken at words. A word that is longer than a line is broken at a slash or
 * where the line ends. Without a limit, a text keeps its lines.
 */
export function wrapped(text: string, columns: number): string[] {
  return text.split('\n').flatMap((line) => wrappedLine(line, columns));
}

function wrappedLine(text: string, columns: number): string[] {
  if (columnsOf(text) <= columns) return [text];
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (columnsOf(longer) <= columns) {
      line = longer;
      continue;
    }
    if (line !== '') lines.push(line);
    line = word;
    while (columnsOf(line) > columns) {
      const [most] = splitAt(line, columns);
      const slash = most.lastIndexOf('/') + 1;
      const start = slash > most.length / 2 ? slash : most.length;
      lines.push(line.slice(0, start));
      line = line.slice(start);
    }
  }
  return [...lines, line];
}

/** As many characters as fit, at least one where there is a column for it, and the others. */
function splitAt(text: string, columns: number): [string, string] {
  let used = 0;
  let end = 0;
  for (const character of text) {
    used += columnsOf(character);
    if (used > columns && (end > 0 || columns < 1)) break;
    end += character.length;
  }
  return [text.slice(0, end), text.slice(end)];
}

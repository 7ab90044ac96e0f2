/** The parts of Markdown that generated sections are made of. */

/** A text as one cell of a table. */
const cell = (text: string): string => text.replaceAll('\n', ' ').replaceAll('|', '\\|').trim();

/** A table. Each row has as many cells as the heading. */
export const table = (heading: readonly string[], rows: readonly (readonly string[])[]): string =>
  [heading, heading.map(() => '---'), ...rows]
    .map((cells) => `| ${cells.map(cell).join(' | ')} |`)
    .join('\n');

export const code = (text: string): string => `\`${text}\``;

export const codes = (texts: readonly string[]): string => texts.map(code).join(', ');

export const fenced = (language: string, text: string): string =>
  `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``;

export const paragraphs = (...parts: readonly (string | undefined)[]): string =>
  parts.filter((part) => part !== undefined && part !== '').join('\n\n');

/** The anchor that GitHub gives to a heading. */
export const anchor = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w -]/g, '')
    .replaceAll(' ', '-');

/** A number with commas between thousands. */
export const grouped = (value: number): string => value.toLocaleString('en');

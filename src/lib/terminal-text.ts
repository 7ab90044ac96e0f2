/**
 * Makes text of other parties safe for a terminal and for a log.
 *
 * A terminal obeys control characters: they move the cursor, set the title, or hide earlier output.
 * Characters that change the direction of writing make one text look like another. Both become escapes such
 * as `\u001b`, which are readable, have no effect, and mean the same character in JSON.
 */

/** C0 and C1 controls, DEL, line and paragraph separators, and marks of direction. */
const dangerous = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** A text for one line: its line breaks are escaped too, so that no text can look like a further line. */
export const inLine = (text: string): string => text.replace(dangerous, escaped);

/** A text of several lines, which keeps its line breaks and tabs. */
export const inLines = (text: string): string =>
  text.replace(dangerous, (character) =>
    character === '\n' || character === '\t' ? character : escaped(character),
  );

import { inLines } from '../../lib/terminal-text.ts';
import { painted, usesColor } from './color.ts';
import { lineWidth, paragraph } from './output.ts';

const prefix = 'leasehold:';
let hasListener = false;

/**
 * Prints a message for people on standard error, with text from other clients made safe. A closed
 * standard error is ignored, so that the work continues: a guard stops its command even after its terminal is
 * gone.
 */
export function printToStderr(text: string): void {
  if (!hasListener) process.stderr.on('error', () => {});
  hasListener = true;
  const lines = paragraph(`${prefix} ${inLines(text)}`, lineWidth(process.stderr));
  process.stderr.write(`${lines.replace(prefix, painted(prefix, 'yellow', usesColor(process.stderr)))}\n`);
}

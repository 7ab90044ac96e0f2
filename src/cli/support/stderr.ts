import { inLines } from '../../lib/terminal-text.ts';

let hasListener = false;

/**
 * Prints a message for people on standard error, with text from other clients made safe. A closed
 * standard error is ignored, so that the work continues: a guard stops its command even after its terminal is
 * gone.
 */
export function printToStderr(text: string): void {
  if (!hasListener) process.stderr.on('error', () => {});
  hasListener = true;
  process.stderr.write(`leasehold: ${inLines(text)}\n`);
}

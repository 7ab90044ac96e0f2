import { inLines } from '../../lib/terminal-text.ts';

let hasListener = false;

/**
 * Tells people one thing on standard error, with what others have written made harmless. Where standard error has no reader
 * any more, what there is to be done is done all the same: a command is stopped also after the terminal that it was started
 * from is gone.
 */
export function printToStderr(text: string): void {
  if (!hasListener) process.stderr.on('error', () => {});
  hasListener = true;
  process.stderr.write(`leasehold: ${inLines(text)}\n`);
}

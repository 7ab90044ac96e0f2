import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/**
 * The command line that starts this program: its name where that is on the PATH, because that works for every
 * user, or else its path on this machine.
 */
export function ownCommand(): string {
  const [node = '', main = ''] = process.argv;
  return isOnPath() ? 'leasehold' : [node, main].map(quoted).join(' ');
}

/** Whether this program is on the PATH under its name. */
export const isOnPath = (): boolean =>
  (process.env.PATH ?? '').split(delimiter).some((folder) => isExecutable(join(folder, 'leasehold')));

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** One argument, quoted for a shell. */
const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/**
 * How others are to call this program: by its name where it is on the PATH, because that works for everybody who has it,
 * or else by where it is on this machine.
 */
export function ownCommand(): string {
  const [node = '', main = ''] = process.argv;
  return isOnPath() ? 'leasehold' : [node, main].map(quoted).join(' ');
}

/** Whether this program is found by its name. */
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

/** One word for a shell. */
const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

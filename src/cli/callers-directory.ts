import { realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The top of this program's package. */
const top = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/**
 * Goes to the directory in which the user called `npm run leasehold`, because npm starts scripts at the top of their package.
 * Scripts of other packages, and processes that a script has started elsewhere, stay where they are.
 */
export function enterCallersDirectory(): void {
  const { INIT_CWD, npm_lifecycle_event: script, npm_package_json: manifest } = process.env;
  if (INIT_CWD === undefined || manifest === undefined || script !== 'leasehold') return;
  if (process.cwd() !== top || realpathSync(manifest) !== join(top, 'package.json')) return;
  process.chdir(INIT_CWD);
  // What this process starts is in the right directory already, also where that is the top of this package.
  delete process.env.npm_lifecycle_event;
}

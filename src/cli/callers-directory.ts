import { realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The top directory of this program's package. */
const top = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/**
 * Changes to the directory in which the user called `npm run leasehold`, because npm starts scripts in the
 * top directory of their package. Scripts of other packages, and processes that a script started elsewhere,
 * keep their directory.
 */
export function enterCallersDirectory(): void {
  const { INIT_CWD, npm_lifecycle_event: script, npm_package_json: manifest } = process.env;
  if (INIT_CWD === undefined || manifest === undefined || script !== 'leasehold') return;
  if (process.cwd() !== top || realpathSync(manifest) !== join(top, 'package.json')) return;
  process.chdir(INIT_CWD);
  // Child processes start in the right directory already, even if that is the top directory of this package.
  delete process.env.npm_lifecycle_event;
}

/** `npm run public-names`: adds new names to `test/public-names.json`, and removes those that `--remove` names. */
import { parseArgs } from 'node:util';
import { publicNamesFile, updateNames } from './name-list.ts';
import { publicNames } from './public-names.ts';

const { remove = [] } = parseArgs({ options: { remove: { type: 'string', multiple: true } } }).values;
const { problems, written } = updateNames(publicNamesFile, await publicNames(), remove);
if (problems.length > 0) {
  process.stderr.write(`${problems.join('\n')}\nnothing was written\n`);
  process.exitCode = 1;
} else process.stdout.write(`${written} names were added, changed or removed\n`);

import { version } from '../version.ts';
import { readNothing } from './args.ts';
import type { Command } from './commands.ts';

export const versionCommand: Command = {
  name: 'version',
  flags: {},
  help: () => `Usage: leasehold version

Prints the version.
`,
  async run(args) {
    process.stdout.write(readNothing(args).help ? this.help() : `${version}\n`);
    return 0;
  },
};

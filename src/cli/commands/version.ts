import { version } from '../../lib/version.ts';
import type { Command } from '../main.ts';
import { readNothing } from '../support/args.ts';

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

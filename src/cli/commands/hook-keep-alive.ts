import { keepAlive } from '../../agent/keepalive-daemon.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { printHelp } from '../support/output.ts';

export const hookKeepAliveCommand: Command = {
  name: 'hook keep-alive',
  flags: {},
  help: () => `Usage: leasehold hook keep-alive <owner_id>

Sends heartbeats for an owner that a hook has recorded, until its session or the
process of its agent ends. Then it ends the owner too. Only one of them runs for
an owner; a second one exits at once. Hooks start it; users need not.
`,
  async run(args) {
    const { help, words } = readFlags(args, {});
    if (help) {
      printHelp(this.help());
      return 0;
    }
    const [ownerId, ...others] = words;
    if (ownerId === undefined || others.length > 0) throw new UsageError('takes one owner');
    await keepAlive(ownerId);
    return 0;
  },
};

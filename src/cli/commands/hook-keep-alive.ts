import { keepAlive } from '../../agent/keepalive-daemon.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';

export const hookKeepAliveCommand: Command = {
  name: 'hook keep-alive',
  flags: {},
  help: () => `Usage: leasehold hook keep-alive <owner_id>

Heartbeats for an owner that a hook has noted, until its session ends or its agent's process is gone; then it ends the
owner too. Only one of them runs for an owner: another one ends at once. Hooks start it; nobody else needs to.
`,
  async run(args) {
    const { help, words } = readFlags(args, {});
    if (help) {
      process.stdout.write(this.help());
      return 0;
    }
    const [ownerId, ...others] = words;
    if (ownerId === undefined || others.length > 0) throw new UsageError('takes one owner');
    await keepAlive(ownerId);
    return 0;
  },
};

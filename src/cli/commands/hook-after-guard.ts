import { FilesClient } from '../../agent/files-client.ts';
import { cleanUpAfterGuard } from '../../agent/guard-watchdog.ts';
import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { printHelp } from '../support/output.ts';
import { printToStderr } from '../support/stderr.ts';

const flags = { url: 'string', owner: 'string', 'grace-ms': 'string' } as const;

const answerLimitMs = 10_000;

export const hookAfterGuardCommand: Command = {
  name: 'hook after-guard',
  flags,
  help: () => `Usage: leasehold hook after-guard '<pid> <started>' [flags]

Cleans up after a guard that was killed: stops its command, then ends its owner.
Guards start it; users need not.

  --owner <id>          The owner to end; the default is none.
  --grace-ms <ms>       The time between SIGTERM and SIGKILL.
${urlHelp}
`,
  async run(args) {
    const { help, values, words } = readFlags(args, flags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    const [, pid, started] = /^(\d+) (.*)$/.exec(words[0] ?? '') ?? [];
    if (pid === undefined || started === undefined || words.length > 1)
      throw new UsageError('takes one process');
    const api = new FilesClient(values.url, { timeoutMs: answerLimitMs });
    await cleanUpAfterGuard(
      api,
      { pid: Number(pid), started },
      {
        ownerId: values.owner,
        graceMs: Number(values['grace-ms'] ?? 0),
        say: printToStderr,
      },
    );
    return 0;
  },
};

import { hostname } from 'node:os';
import { callerName } from '../../agent/caller-name.ts';
import { locate, PathError } from '../../agent/file-key.ts';
import { FilesClient } from '../../agent/files-client.ts';
import { Guard, guardCodes, ownerVariable } from '../../agent/guard.ts';
import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { onUnreachableHelp, readOnUnreachable } from '../support/on-unreachable.ts';
import { printHelp } from '../support/output.ts';
import { printToStderr } from '../support/stderr.ts';

const flags = {
  owner: 'string',
  repository: 'string',
  'on-unreachable': 'string',
  grace: 'string',
  url: 'string',
} as const;

const graceS = 10;
const answerLimitMs = 10_000;

export const guardCommand: Command = {
  name: 'guard',
  flags,
  help: () => `Usage: leasehold guard <path>... [flags] -- <command> [args...]

Runs a command while no other owner holds the given files. The guard takes a lease
on all of them or none, renews it while the command runs, and releases it at the
end. If another owner holds one of them, the guard waits until the lease may be
requested again, three minutes after the denial. If that request is denied too,
the guard halts. It prints nothing unless that happens.

The files need not exist. A file is identified by the top of its git repository
and its path below it; links and letter case are resolved. The command inherits
the guard's input, output and signals, and finds the owner in
${ownerVariable}, so that guards and commits within it act for the same owner.
If the guard is killed, its command and the descendants of the command are
stopped; only a process that has detached itself survives.

  --owner <id>          The owner of the files: the name of a session. The default
                        is ${ownerVariable}, or else an owner that ends
                        with the command. In that case the caller waits and halts:
                        the coding agent, or else the user, the host and the
                        shell. A restarted guard is the same caller; two guards
                        that run at once compete.
  --repository <dir>    The directory that paths outside every git repository are
                        relative to; the default is the root of the file system.
${onUnreachableHelp('deny', 'runs the command without a lease', 'does not run it, and stops it before its lease\n                        expires')}
  --grace <seconds>     The time between SIGTERM and SIGKILL if the lease is lost
                        while the command runs; the default is ${graceS}.
${urlHelp}

Exits as the command does, with 128 and the signal's number if a signal ended it,
or with
  ${guardCodes.refused}   the server refused the request
  2   the arguments of the guard are not valid
  ${guardCodes.unreachable}  no server answers; the command was not run
  ${guardCodes.halted}  halted: a file was denied twice. The report is on standard error, and the
      command was not run. The halt stays until an operator instructs it. The
      instruction is applied when the guard is started again
  ${guardCodes.lost}  the lease was lost; the command was stopped
  126, 127  the command cannot be run, or is not found
`,
  async run(args) {
    const end = args.indexOf('--');
    const { help, values, words } = readFlags(end < 0 ? args : args.slice(0, end), flags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    const command = end < 0 ? [] : args.slice(end + 1);
    if (words.length === 0) throw new UsageError('names no file');
    if (command.length === 0) throw new UsageError("names no command; it stands after '--'");
    const named = values.owner || process.env[ownerVariable];
    const guard = new Guard({
      api: new FilesClient(values.url, { timeoutMs: answerLimitMs }),
      ownerId: named || newOwner(),
      isOwn: !named,
      ...(named ? {} : { callerId: callerName() }),
      files: words.map((word) => keyOf(word, values.repository)),
      command,
      onUnreachable: readOnUnreachable(values['on-unreachable'], 'deny'),
      graceMs: secondsIn(values.grace) * 1000,
      say: printToStderr,
    });
    return guard.run();
  },
};

/**
 * Not from `node:crypto`, which takes longer to load than the guard's own code. The id need not be hard to
 * guess.
 */
function newOwner(): string {
  const random = Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0');
  return `guard-${hostname()}-${process.pid}-${random}`;
}

function keyOf(word: string, repository: string | undefined) {
  try {
    return locate(word, repository === undefined ? {} : { root: repository });
  } catch (error) {
    if (error instanceof PathError) throw new UsageError(error.message);
    throw error;
  }
}

function secondsIn(text: string | undefined): number {
  if (text === undefined) return graceS;
  if (/^\d{1,4}$/.test(text)) return Number(text);
  throw new UsageError(`--grace must be a whole number of seconds, not ${JSON.stringify(text)}`);
}

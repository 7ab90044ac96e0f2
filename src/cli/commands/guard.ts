import { hostname } from 'node:os';
import { callerName } from '../../agent/caller-name.ts';
import { locate, PathError } from '../../agent/file-key.ts';
import { FilesApi } from '../../agent/files-client.ts';
import { Guard, guardCodes, ownerVariable } from '../../agent/guard.ts';
import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { onUnreachableHelp, readOnUnreachable } from '../support/on-unreachable.ts';
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

Runs a command while nobody else has these files: takes a lease on them, all or none, keeps it while the command runs
and gives it back at the end. Where somebody has one of them, it waits until the lease may be asked for once more,
three minutes after the denial, and halts where that is denied too. It says nothing unless that happens.

The files need not exist. They are told apart by the top of their git repository and their path below it; links and
letter case are resolved. The command gets the input, the output and the signals of the guard, and finds the owner in
${ownerVariable}, so that guards and commits within it act for the same one. Where the guard is killed outright, its
command and what that has started are stopped as well; only what has left its parents lives on.

  --owner <id>          Who holds the files: the name of a session. Where neither this nor
                        ${ownerVariable} is given, an owner that ends with the command. Who waits
                        and halts is then the caller: the coding agent, or else the user, the
                        host and the shell. A guard that is started again is the same caller
                        asking again; two guards that run at once compete.
  --repository <dir>    What files outside every git repository are counted from; the root of
                        the file system where left out.
${onUnreachableHelp('deny', 'runs the command without a lease', 'does not run it, and stops it before its lease runs out')}
  --grace <seconds>     Between SIGTERM and SIGKILL, where the lease is lost while the command
                        runs; ${graceS} where left out.
${urlHelp}

Ends as the command does, with 128 and the number of the signal where one has ended it, or with
  ${guardCodes.refused}   the server has refused the request
  2   the guard's own arguments were not understood
  ${guardCodes.unreachable}  no server answers; the command was not run
  ${guardCodes.halted}  halted: a file was not to be had; the report is on standard error, and the command was not run.
      The halt stays until an operator instructs it. What is decided is applied when the guard is started again
  ${guardCodes.lost}  the lease was lost; the command was stopped
  126, 127  the command cannot be run, is not there
`,
  async run(args) {
    const end = args.indexOf('--');
    const { help, values, words } = readFlags(end < 0 ? args : args.slice(0, end), flags);
    if (help) {
      process.stdout.write(this.help());
      return 0;
    }
    const command = end < 0 ? [] : args.slice(end + 1);
    if (words.length === 0) throw new UsageError('names no file');
    if (command.length === 0) throw new UsageError("names no command; it stands after '--'");
    const named = values.owner || process.env[ownerVariable];
    const guard = new Guard({
      api: new FilesApi(values.url, { timeoutMs: answerLimitMs }),
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

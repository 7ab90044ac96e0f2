import { text } from 'node:stream/consumers';
import { answerHook, readHookInput, writingTools } from '../../agent/claude-code-hook.ts';
import { FilesClient } from '../../agent/files-client.ts';
import { agentPidVariable } from '../../agent/find-agent.ts';
import { SessionStore } from '../../agent/session-store.ts';
import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { onUnreachableHelp, readOnUnreachable } from '../support/on-unreachable.ts';
import { printHelp } from '../support/output.ts';
import { printToStderr } from '../support/stderr.ts';

const flags = { 'on-unreachable': 'string', url: 'string' } as const;

const answerLimitMs = 8_000;

export const hookClaudeCodeCommand: Command = {
  name: 'hook claude-code',
  flags,
  help: () => `Usage: leasehold hook claude-code [flags]

A hook of Claude Code. It reads the event from standard input, and answers on
standard output if an answer is needed. 'leasehold hook install' adds it to the
settings.

  PreToolUse        of ${Object.keys(writingTools).join(', ')}:
                    takes a lease on the file for the session, or for its
                    sub-agent. A sub-agent borrows the files of the session, and
                    returns them unless it commits them. If another owner holds
                    the file, the hook waits until the retry, three minutes after
                    the denial. If the retry is denied too, it denies the tool,
                    with the full report as the reason.
  PostToolUse, UserPromptSubmit
                    the session is active
  Stop              the session has stopped; without activity its files are
                    released after 30 seconds
  SubagentStop      the sub-agent has ended: borrowed files return to the session,
                    its other files are released
  SessionEnd        the session has ended, and all its files are released

The first write of a session starts a heartbeater. It renews the leases until the
session or the process of the agent ends. The agent is looked for among the
parents of the hook; ${agentPidVariable} may name it.
The state of sessions is in $LEASEHOLD_STATE_DIR, or in leasehold below
$XDG_STATE_HOME or ~/.local/state.

${onUnreachableHelp('allow', 'lets the agent write, and informs the user', 'denies the tool, and informs the agent')}
${urlHelp}

Exits with 0, whatever the decision is, or with 1 if the event is not valid. In
that case Claude Code shows the message, and blocks nothing.
`,
  async run(args) {
    try {
      return await run(this, args);
    } catch (error) {
      // Claude Code reads exit code 2 as a denial of the tool, or of its own end. A mistyped flag must not
      // cause that.
      if (!(error instanceof UsageError)) throw error;
      printToStderr(`${error.message}\nSee 'leasehold hook claude-code --help'.`);
      return 1;
    }
  },
};

async function run(command: Command, args: readonly string[]): Promise<number> {
  const { help, values, words } = readFlags(args, flags);
  if (help) {
    printHelp(command.help());
    return 0;
  }
  if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
  const onUnreachable = readOnUnreachable(values['on-unreachable'], 'allow');
  const input = readHookInput(await text(process.stdin));
  if (typeof input === 'string') {
    printToStderr(input);
    return 1;
  }
  const api = new FilesClient(values.url, { timeoutMs: answerLimitMs });
  const { code, stdout, stderr } = await answerHook(input, { api, notes: new SessionStore(), onUnreachable });
  if (stdout) process.stdout.write(`${JSON.stringify(stdout)}\n`);
  if (stderr) printToStderr(stderr);
  return code;
}

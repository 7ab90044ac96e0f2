import { text } from 'node:stream/consumers';
import { answerHook, readHookInput, writingTools } from '../../agent/claude-code-hook.ts';
import { FilesApi } from '../../agent/files-client.ts';
import { agentPidVariable } from '../../agent/find-agent.ts';
import { SessionStore } from '../../agent/session-store.ts';
import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { onUnreachableHelp, readOnUnreachable } from '../support/on-unreachable.ts';
import { printToStderr } from '../support/stderr.ts';

const flags = { 'on-unreachable': 'string', url: 'string' } as const;

const answerLimitMs = 8_000;

export const hookClaudeCodeCommand: Command = {
  name: 'hook claude-code',
  flags,
  help: () => `Usage: leasehold hook claude-code [flags]

A hook of Claude Code: reads the event on standard input, and answers on standard output where there is something to
say. 'leasehold hook install' has it called.

  PreToolUse        of ${Object.keys(writingTools).join(', ')}: takes a lease on the file for the
                    session, or for the agent that it has sent out, which borrows what the session holds and returns
                    it unless it commits it. Where another owner has the file, waits until it may be asked for once more, three minutes after the denial; where that is denied too, denies the tool
                    with the full report as its reason.
  PostToolUse, UserPromptSubmit   the session is at work
  Stop              it has stopped; without activity its files come free after 30 seconds
  SubagentStop      the agent that was sent out has ended: what it borrowed returns to the session, its other files come
                    free
  SessionEnd        the session has ended, and all its files come free

The first write of a session starts a heartbeater, which keeps its leases until the session or the agent's process
ends. The process is found among those that the hook was started by; ${agentPidVariable} may name it.
What is known of sessions is kept in $LEASEHOLD_STATE_DIR, or in leasehold below $XDG_STATE_HOME or ~/.local/state.

${onUnreachableHelp('allow', 'lets the agent write, and tells people so', 'denies the tool, and tells the agent so')}
${urlHelp}

Ends with 0, whatever was decided, or with 1 where the event could not be made sense of; that is shown, and blocks
nothing.
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
    process.stdout.write(command.help());
    return 0;
  }
  if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
  const onUnreachable = readOnUnreachable(values['on-unreachable'], 'allow');
  const input = readHookInput(await text(process.stdin));
  if (typeof input === 'string') {
    printToStderr(input);
    return 1;
  }
  const api = new FilesApi(values.url, { timeoutMs: answerLimitMs });
  const { code, stdout, stderr } = await answerHook(input, { api, notes: new SessionStore(), onUnreachable });
  if (stdout) process.stdout.write(`${JSON.stringify(stdout)}\n`);
  if (stderr) printToStderr(stderr);
  return code;
}

import type { Command, Entry } from '../main.ts';
import { UsageError } from '../support/args.ts';
import { printHelp } from '../support/output.ts';

const hooks: readonly Entry[] = [
  {
    name: 'claude-code',
    about: 'What a coding agent calls before and after it writes.',
    load: async () => (await import('./hook-claude-code.ts')).hookClaudeCodeCommand,
  },
  {
    name: 'install',
    about: "Write that into the agent's settings.",
    load: async () => (await import('./hook-install.ts')).hookInstallCommand,
  },
  {
    name: 'uninstall',
    about: 'Take it out again.',
    load: async () => (await import('./hook-install.ts')).hookUninstallCommand,
  },
  {
    name: 'git',
    about: 'Release committed files; install and run the hooks of git.',
    load: async () => (await import('./hook-git.ts')).hookGitCommand,
  },
  {
    name: 'keep-alive',
    about: "Send heartbeats for an agent's session; hooks start it.",
    load: async () => (await import('./hook-keep-alive.ts')).hookKeepAliveCommand,
  },
  {
    name: 'after-guard',
    about: 'Clean up after a killed guard; guards start it.',
    load: async () => (await import('./hook-after-guard.ts')).hookAfterGuardCommand,
  },
];

export const hookCommand: Command = {
  name: 'hook',
  flags: {},
  commands: hooks,
  help: () => `Usage: leasehold hook <hook> [--help]

Hooks that lease files automatically: agents take leases before they write and
renew them while they live, and commits release them.

${hooks.map(({ name, about }) => `  ${name.padEnd(13)}${about}`).join('\n')}
`,
  async run([name, ...rest]) {
    if (name === '--help' || name === '-h') {
      printHelp(this.help());
      return 0;
    }
    const entry = hooks.find((candidate) => candidate.name === name);
    if (!entry) {
      throw new UsageError(name === undefined ? 'names no hook' : `there is no hook ${JSON.stringify(name)}`);
    }
    return (await entry.load()).run(rest);
  },
};

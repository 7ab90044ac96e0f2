import type { Command, Entry } from '../main.ts';
import { UsageError } from '../support/args.ts';

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
    about: 'Give back what is committed, and put that into a repository.',
    load: async () => (await import('./hook-git.ts')).hookGitCommand,
  },
  {
    name: 'keep-alive',
    about: "The heartbeater of an agent's session; hooks start it.",
    load: async () => (await import('./hook-keep-alive.ts')).hookKeepAliveCommand,
  },
  {
    name: 'after-guard',
    about: 'Ends what a guard that was killed has left; guards have it started.',
    load: async () => (await import('./hook-after-guard.ts')).hookAfterGuardCommand,
  },
];

export const hookCommand: Command = {
  name: 'hook',
  flags: {},
  commands: hooks,
  help: () => `Usage: leasehold hook <hook> [--help]

What makes leases on files happen by themselves: agents take them before they write and keep them while they live, and
commits give them back.

${hooks.map(({ name, about }) => `  ${name.padEnd(13)}${about}`).join('\n')}
`,
  async run([name, ...rest]) {
    if (name === '--help' || name === '-h') {
      process.stdout.write(this.help());
      return 0;
    }
    const entry = hooks.find((candidate) => candidate.name === name);
    if (!entry) {
      throw new UsageError(name === undefined ? 'names no hook' : `there is no hook ${JSON.stringify(name)}`);
    }
    return (await entry.load()).run(rest);
  },
};

import {
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { SettingsError, withHooks, withoutHooks } from '../../agent/claude-settings.ts';
import { repositoryOf } from '../../agent/file-key.ts';
import { lineDiff } from '../../agent/line-diff.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { isFileError } from '../support/file-error.ts';
import { readOnUnreachable } from '../support/on-unreachable.ts';
import { printHelp, printNote } from '../support/output.ts';
import { isOnPath, ownCommand } from '../support/own-command.ts';
import { printToStderr } from '../support/stderr.ts';

const flags = {
  agent: 'string',
  project: 'boolean',
  user: 'boolean',
  'dry-run': 'boolean',
  'on-unreachable': 'string',
} as const;

const flagsHelp = `  --agent claude-code   The agent; there is no other one yet.
  --project             .claude/settings.json at the top of the repository, which
                        its developers share. This is the default.
  --user                .claude/settings.json in the home directory.
  --dry-run             Show the changes, and make none.`;

export const hookInstallCommand: Command = {
  name: 'hook install',
  flags,
  help: () => `Usage: leasehold hook install [flags]

Adds hooks that call 'leasehold hook claude-code' to the settings of a coding
agent, keeps all other settings, and shows the changes. Running it twice is
harmless. Settings that are not valid are not changed.

${flagsHelp}
  --on-unreachable <what>
                        Written into the hooks: 'allow' or 'deny'. See
                        'leasehold hook claude-code --help'.
`,
  run(args) {
    return change(this, args, (text, onUnreachable) => {
      const policy =
        onUnreachable === undefined ? '' : ` --on-unreachable ${readOnUnreachable(onUnreachable, 'allow')}`;
      return withHooks(text, `${ownCommand()} hook claude-code${policy}`);
    });
  },
};

export const hookUninstallCommand: Command = {
  name: 'hook uninstall',
  flags,
  help: () => `Usage: leasehold hook uninstall [flags]

Removes the hooks of 'leasehold hook install' from the settings of a coding
agent, and shows the changes.

${flagsHelp}
  --on-unreachable <what>
                        Ignored, so that the flags of install may be repeated.
`,
  run(args) {
    return change(this, args, withoutHooks);
  },
};

async function change(
  command: Command,
  args: readonly string[],
  edit: (text: string, onUnreachable: string | undefined) => string,
): Promise<number> {
  const { help, values, words } = readFlags(args, flags);
  if (help) {
    printHelp(command.help());
    return 0;
  }
  if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
  if (values.project && values.user) throw new UsageError('takes either --project or --user');
  const { agent = 'claude-code' } = values;
  if (agent !== 'claude-code')
    throw new UsageError(`knows no agent ${JSON.stringify(agent)}; only claude-code`);
  const file = fileOf(values.user === true);
  try {
    const before = existsSync(file) ? readFileSync(file, 'utf8') : '';
    const after = edit(before, values['on-unreachable']);
    if (after === before) {
      printNote(`${file} is as it should be; nothing to change`);
      return 0;
    }
    printNote(`${file}\n${lineDiff(before, after)}`);
    if (!values.user && !isOnPath() && after.includes(ownCommand())) {
      printNote('leasehold is not on the PATH, so the hooks name where it is on this machine');
    }
    if (values['dry-run']) printNote('nothing was changed');
    else write(file, after);
    return 0;
  } catch (error) {
    if (!(error instanceof SettingsError || isFileError(error))) throw error;
    const words =
      error instanceof SettingsError ? `${file} ${error.message}; it is left as it is` : error.message;
    printToStderr(words);
    return 1;
  }
}

function fileOf(isUser: boolean): string {
  const folder = isUser ? homedir() : (repositoryOf(process.cwd()) ?? process.cwd());
  const file = join(folder, '.claude', 'settings.json');
  // A link stays a link, because settings are often stored elsewhere.
  return existsSync(file) ? realpathSync(file) : file;
}

/**
 * Writes to a temporary file and renames it, so that an agent that reads meanwhile sees one complete version.
 */
function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  const aside = `${file}.leasehold-new`;
  const mode = statSync(file, { throwIfNoEntry: false })?.mode;
  writeFileSync(aside, text, mode === undefined ? {} : { mode });
  renameSync(aside, file);
}

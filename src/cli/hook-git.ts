import { FilesApi } from '../gate/files-api.ts';
import { GitError } from '../gate/git.ts';
import { GitHookError, installGitHook, uninstallGitHook } from '../gate/git-hook.ts';
import { ownerVariable } from '../gate/guard.ts';
import { Notes } from '../gate/notes.ts';
import { releaseCommitted } from '../gate/post-commit.ts';
import { readFlags, UsageError } from './args.ts';
import type { Command } from './commands.ts';
import { isFileError } from './file-error.ts';
import { tell } from './output.ts';
import { ownCommand } from './own-command.ts';
import { say } from './say.ts';
import { urlHelp } from './server-client.ts';

const answerLimitMs = 5_000;

export const hookGitCommand: Command = {
  name: 'hook git',
  help: () => `Usage: leasehold hook git install | uninstall | post-commit [flags]

  install       Puts a post-commit hook into the repository of the current directory, where core.hooksPath says or
                where git has its hooks. A hook that is there is kept, and runs first. Twice is the same as once.
                Husky's are left alone; it says where to add a line instead.
  uninstall     Takes it away, and puts back what was there.
  post-commit   What that hook calls: gives back the files of the last commit that belong to whoever made it, which is
                ${ownerVariable}, or else the agent that the commit was started by. Files of others in the
                commit are reported, and stay theirs. Author and committer are none of its business.

${urlHelp}

post-commit always ends with 0: the commit is made, and a server that is down does not change that.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, { url: 'string' });
    if (help) {
      process.stdout.write(this.help());
      return 0;
    }
    const [verb, ...others] = words;
    if (others.length > 0) throw new UsageError(`takes no ${JSON.stringify(others[0])}`);
    switch (verb) {
      case 'install':
        return told(() => installGitHook(process.cwd(), ownCommand()));
      case 'uninstall':
        return told(() => uninstallGitHook(process.cwd()));
      case 'post-commit':
        return postCommit(values.url);
      default:
        throw new UsageError(
          verb === undefined ? 'says nothing to do' : `git hooks cannot ${JSON.stringify(verb)}`,
        );
    }
  },
};

async function told(work: () => Promise<string>): Promise<number> {
  try {
    tell(await work());
    return 0;
  } catch (error) {
    if (!(error instanceof GitError || error instanceof GitHookError || isFileError(error))) throw error;
    process.stderr.write(`leasehold: ${error.message}\n`);
    return 1;
  }
}

/** Whatever goes wrong is said and nothing more: git would say of a hook that fails that the commit has. */
async function postCommit(url: string | undefined): Promise<number> {
  try {
    const words = await releaseCommitted(new FilesApi(url, { timeoutMs: answerLimitMs }), new Notes());
    for (const word of words) say(word);
  } catch (error) {
    say(`could not give back what was committed: ${error instanceof Error ? error.message : String(error)}`);
  }
  return 0;
}

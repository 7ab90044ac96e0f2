import { text } from 'node:stream/consumers';
import { FilesClient } from '../../agent/files-client.ts';
import { GitError } from '../../agent/git.ts';
import { GitHookError, installGitHook, uninstallGitHook } from '../../agent/git-hook.ts';
import { ownerVariable } from '../../agent/guard.ts';
import { type Made, releaseCommitted } from '../../agent/release-committed.ts';
import { SessionStore } from '../../agent/session-store.ts';
import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { isFileError } from '../support/file-error.ts';
import { printHelp, printNote } from '../support/output.ts';
import { ownCommand } from '../support/own-command.ts';
import { printToStderr } from '../support/stderr.ts';

const flags = { url: 'string' } as const;

const answerLimitMs = 5_000;

export const hookGitCommand: Command = {
  name: 'hook git',
  flags,
  verbs: ['install', 'uninstall', 'post-commit', 'post-merge', 'post-rewrite'].map((name) => ({
    name,
    flags,
  })),
  help: () => `Usage: leasehold hook git install | uninstall [flags]
       leasehold hook git post-commit [<commit>] [flags]
       leasehold hook git post-merge <before> <after> [flags]
       leasehold hook git post-rewrite [flags]

  install       Adds three hooks to the repository of the current directory:
                post-commit, post-merge and post-rewrite, in core.hooksPath or
                git's own directory. Existing hooks are kept, and run first.
                Running it twice is harmless; hooks of an earlier version are
                replaced. Hooks of Husky are not changed; the command prints the
                lines to add.
  uninstall     Removes these hooks, and restores the previous ones.
  post-commit   What the hook calls after a commit, an amend, a cherry-pick or a
                revert. It releases the files of the commit, by default HEAD, that
                belong to the committer: ${ownerVariable}, or else the agent
                that started the commit. Files of other owners in the commit are
                reported, and stay theirs. The author and the committer of the
                commit itself do not matter.
  post-merge    The same after a merge or a pull, for the files that it changed.
  post-rewrite  The same after a rebase, for the commits that it wrote, as git
                lists them on standard input.

Each hook asks git for its commit first, so that commits in quick succession each
release their own files. Files of the committer that were committed after they
were acquired and are unchanged since are released too.

${urlHelp}

post-commit, post-merge and post-rewrite always exit with 0: the commit is made,
and an unreachable server does not change that.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, flags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    const [verb, ...others] = words;
    switch (verb) {
      case 'install':
        noMoreThan(0, others);
        return withErrors(() => installGitHook(process.cwd(), ownCommand()));
      case 'uninstall':
        noMoreThan(0, others);
        return withErrors(() => uninstallGitHook(process.cwd()));
      case 'post-commit':
        noMoreThan(1, others);
        // Hooks of earlier versions pass no commit; a hook whose git command failed passes an empty one.
        return release(values.url, async () => ({ commits: [others[0] || 'HEAD'] }));
      case 'post-merge': {
        noMoreThan(2, others);
        const [from, to] = others;
        return release(values.url, async () => (from && to ? { from, to } : { commits: ['HEAD'] }));
      }
      case 'post-rewrite':
        noMoreThan(0, others);
        return release(values.url, async () => ({ commits: rewrittenIn(await text(process.stdin)) }));
      default:
        throw new UsageError(
          verb === undefined
            ? 'hook git needs a command: install, uninstall'
            : `hook git has no command ${JSON.stringify(verb)}; its commands are install, uninstall`,
        );
    }
  },
};

function noMoreThan(max: number, words: readonly string[]): void {
  if (words.length > max) throw new UsageError(`takes no ${JSON.stringify(words[max])}`);
}

/** The new commits in lines of an old and a new commit. */
const rewrittenIn = (lines: string): string[] => [
  ...new Set(lines.split('\n').flatMap((line) => line.split(' ')[1] || [])),
];

async function withErrors(work: () => Promise<string>): Promise<number> {
  try {
    printNote(await work());
    return 0;
  } catch (error) {
    if (!(error instanceof GitError || error instanceof GitHookError || isFileError(error))) throw error;
    printToStderr(error.message);
    return 1;
  }
}

/** A failure is only printed: after a failed hook, git would report that the commit failed. */
async function release(url: string | undefined, made: () => Promise<Made>): Promise<number> {
  try {
    const api = new FilesClient(url, { timeoutMs: answerLimitMs });
    const words = await releaseCommitted(api, new SessionStore(), await made());
    for (const word of words) printToStderr(word);
  } catch (error) {
    printToStderr(
      `could not give back what was committed: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  return 0;
}

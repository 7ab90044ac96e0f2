import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Git could not do what it was asked for; the text is git's own. */
export class GitError extends Error {
  override readonly name = 'GitError';
}

/** The names of a large commit's files. */
const outputMaxBytes = 256 * 1024 * 1024;

/** What git answers, without the line's end. */
export async function git(directory: string, ...args: string[]): Promise<string> {
  try {
    const { stdout } = await run('git', args, { cwd: directory, maxBuffer: outputMaxBytes });
    return stdout.replace(/\n$/, '');
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    throw new GitError(stderr?.trim() || message, { cause: error });
  }
}

/**
 * The files that a commit has changed, added or removed, by their paths from the top of the repository; of a renamed
 * one both. What a merge has brought counts against its first parent, which is what was checked out before.
 */
export async function filesOfCommit(directory: string, commit = 'HEAD'): Promise<string[]> {
  const isFirst =
    (await git(directory, 'rev-list', '--max-count=1', '--parents', commit)).split(' ').length === 1;
  const trees = isFirst ? ['--root', commit] : [`${commit}^1`, commit];
  const format = ['-r', '-z', '--no-commit-id', '--name-only', '--no-renames'];
  const names = await git(directory, 'diff-tree', ...format, ...trees, '--');
  return names.split('\0').filter((name) => name !== '');
}

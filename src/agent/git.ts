import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A git command failed; the text is git's own. */
export class GitError extends Error {
  override readonly name = 'GitError';
}

/** Enough for the file names of a large commit. */
const outputMaxBytes = 256 * 1024 * 1024;

/** Runs git and returns its output without the final newline. */
export const git = (directory: string, ...args: string[]): Promise<string> => gitWith('', directory, ...args);

/** The same, with a text on git's standard input. */
async function gitWith(input: string, directory: string, ...args: string[]): Promise<string> {
  try {
    const running = run('git', args, { cwd: directory, maxBuffer: outputMaxBytes });
    // Git may exit before it has read all input; its exit code and output report the reason.
    running.child.stdin?.on('error', () => {});
    running.child.stdin?.end(input);
    const { stdout } = await running;
    return stdout.replace(/\n$/, '');
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    throw new GitError(stderr?.trim() || message, { cause: error });
  }
}

/**
 * The files that a commit has changed, added or removed, relative to the top of the repository; both names of
 * a renamed file. A merge is compared with its first parent, the commit that was checked out before.
 */
export async function filesOfCommit(directory: string, commit = 'HEAD'): Promise<string[]> {
  const isFirst =
    (await git(directory, 'rev-list', '--max-count=1', '--parents', commit)).split(' ').length === 1;
  const trees = isFirst ? ['--root', commit] : [`${commit}^1`, commit];
  const format = ['-r', '-z', '--no-commit-id', '--name-only', '--no-renames'];
  const names = await git(directory, 'diff-tree', ...format, ...trees, '--');
  return names.split('\0').filter((name) => name !== '');
}

/**
 * Lists files by name alone, each commit against its first parent. The user's settings must not change the
 * output: `log.showSignature` would print a line before the names of each signed commit.
 */
const namesOnly = ['--first-parent', '-m', '--no-renames', '--name-only', '--no-show-signature', '-z'];

/** The files of several commits. */
export async function filesOfCommits(directory: string, commits: readonly string[]): Promise<string[]> {
  if (commits.length === 0) return [];
  const input = `${commits.join('\n')}\n`;
  const log = ['-c', 'log.showRoot=true', 'log', '--no-walk=unsorted', '--stdin', '--format='];
  const names = await gitWith(input, directory, ...log, ...namesOnly);
  return [...new Set(names.split('\0').map((name) => name.replace(/^\n/, '')))].filter((name) => name !== '');
}

/** The files in which two commits differ. */
export async function filesBetween(directory: string, from: string, to: string): Promise<string[]> {
  const names = await git(directory, 'diff-tree', '-r', '-z', '--name-only', '--no-renames', from, to, '--');
  return names.split('\0').filter((name) => name !== '');
}

/** How many recent commits are searched. */
const recentMax = 1_000;

/**
 * The last commit times of files, in milliseconds since 1970: only files committed after `sinceMs`, up to
 * `commit`.
 */
export async function committedSince(
  directory: string,
  sinceMs: number,
  commit = 'HEAD',
): Promise<Map<string, number>> {
  const bounds = [`--max-age=${Math.floor(sinceMs / 1000)}`, `--max-count=${recentMax}`];
  const log = ['-c', 'log.showRoot=true', 'log', ...bounds, '--format=%x00%H %ct'];
  const fields = (await git(directory, ...log, ...namesOnly, commit, '--')).split('\0');
  const objects = resolve(directory, await git(directory, 'rev-parse', '--git-path', 'objects'));
  const files = new Map<string, number>();
  for (let at = 0, committedAtMs = 0; at < fields.length; at++) {
    // An empty entry precedes the id and time of a commit. The first name after those begins with a newline.
    if (fields[at] === '') {
      const idAndSeconds = fields[++at];
      if (idAndSeconds !== undefined) committedAtMs = await commitTimeMs(objects, idAndSeconds);
    } else {
      const name = fields[at] as string;
      const path = fields[at - 2] === '' ? name.replace(/^\n/, '') : name;
      if (!files.has(path)) files.set(path, committedAtMs);
    }
  }
  return files;
}

/**
 * The time of a commit, from its id and its time in seconds. Git stores whole seconds; the modification time
 * of a new commit's object file adds the fraction. A commit without an object file, because it was packed,
 * counts from the beginning of its second.
 */
async function commitTimeMs(objects: string, idAndSeconds: string): Promise<number> {
  const [id = '', seconds] = idAndSeconds.split(' ');
  const fromMs = Number(seconds) * 1000;
  try {
    const { mtimeMs } = await stat(join(objects, id.slice(0, 2), id.slice(2)));
    return mtimeMs >= fromMs && mtimeMs < fromMs + 1000 ? mtimeMs : fromMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return fromMs;
  }
}

/** The most names in one git command; for more files, git compares the whole working tree. */
const pathsMax = 200;

/** The subset of files whose content in the working tree equals that in HEAD. */
export async function unchangedFiles(top: string, paths: readonly string[]): Promise<string[]> {
  const asked = paths.length > pathsMax ? [] : paths;
  const quietly = ['--no-optional-locks', '--literal-pathspecs'];
  const how = ['--no-relative', '--no-ext-diff', '--no-renames', '--name-only', '-z'];
  const changed = await git(top, ...quietly, 'diff', ...how, 'HEAD', '--', ...asked);
  const names = new Set(changed.split('\0'));
  return paths.filter((path) => !names.has(path));
}

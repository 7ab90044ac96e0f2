import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Git could not do what it was asked for; the text is git's own. */
export class GitError extends Error {
  override readonly name = 'GitError';
}

/** The names of a large commit's files. */
const outputMaxBytes = 256 * 1024 * 1024;

/** What git answers, without the line's end. */
export const git = (directory: string, ...args: string[]): Promise<string> => gitWith('', directory, ...args);

/** The same, with something on git's standard input. */
async function gitWith(input: string, directory: string, ...args: string[]): Promise<string> {
  try {
    const running = run('git', args, { cwd: directory, maxBuffer: outputMaxBytes });
    // Git may end before it has read everything; what it says of that is its answer.
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

/**
 * How files are listed: by their names alone, each commit against its first parent. Settings of the user must not add to
 * the output: `log.showSignature` would write a line before the names of each signed commit.
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

/** Commits that are looked at for what was committed lately. */
const recentMax = 1_000;

/** When files were committed last, in milliseconds since 1970; only those committed after `sinceMs`, up to a commit. */
export async function committedSince(
  directory: string,
  sinceMs: number,
  commit = 'HEAD',
): Promise<Map<string, number>> {
  const bounds = [`--max-age=${Math.floor(sinceMs / 1000)}`, `--max-count=${recentMax}`];
  const log = ['-c', 'log.showRoot=true', 'log', ...bounds, '--format=%x00%H %ct'];
  const told = (await git(directory, ...log, ...namesOnly, commit, '--')).split('\0');
  const objects = resolve(directory, await git(directory, 'rev-parse', '--git-path', 'objects'));
  const files = new Map<string, number>();
  for (let at = 0, committedAtMs = 0; at < told.length; at++) {
    // An empty word comes before the id and time of a commit, and the first name after that has a line's end before it.
    if (told[at] === '') {
      const idAndSeconds = told[++at];
      if (idAndSeconds !== undefined) committedAtMs = await commitTimeMs(objects, idAndSeconds);
    } else {
      const name = told[at] as string;
      const path = told[at - 2] === '' ? name.replace(/^\n/, '') : name;
      if (!files.has(path)) files.set(path, committedAtMs);
    }
  }
  return files;
}

/**
 * The time of a commit, from its id and its time in seconds. Git keeps whole seconds; the file of a new commit says the
 * rest. A commit without a file of its own, because it was packed, counts from the beginning of its second.
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

/** Names that are handed to git at once; for more it is asked about the whole working tree. */
const pathsMax = 200;

/** Those of these files that are in the working tree just as they are committed. */
export async function unchangedFiles(top: string, paths: readonly string[]): Promise<string[]> {
  const asked = paths.length > pathsMax ? [] : paths;
  const quietly = ['--no-optional-locks', '--literal-pathspecs'];
  const how = ['--no-relative', '--no-ext-diff', '--no-renames', '--name-only', '-z'];
  const changed = await git(top, ...quietly, 'diff', ...how, 'HEAD', '--', ...asked);
  const names = new Set(changed.split('\0'));
  return paths.filter((path) => !names.has(path));
}

import { readFileSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, parse, relative, resolve, sep } from 'node:path';

/**
 * The name of a file in a lease. Every agent, from every directory and through every link, must derive the
 * same key for the same file. Otherwise two agents could hold the file at once.
 */
export interface FileKey {
  /** The top directory of the file's git repository; in a worktree, the top of that worktree. */
  repository: string;
  /** The path relative to the repository, with slashes. */
  path: string;
}

/** A path that cannot be leased. */
export class PathError extends Error {
  override readonly name = 'PathError';
}

/** The number of links in a row that Linux follows. */
const linksMax = 40;

/**
 * The key of a file that need not exist yet. Outside every git repository the path is relative to `root`.
 * Without `root` it is relative to the root of the file system, which is the same for every agent.
 */
export function locate(
  file: string,
  { from = process.cwd(), root }: { from?: string; root?: string } = {},
): FileKey {
  if (file.trim() === '' || file.includes('\0')) throw new PathError(`${JSON.stringify(file)} is not a path`);
  // Not `resolve`: it shortens a/link/.. to a, and the file system does not.
  const real = realPath(isAbsolute(file) ? file : `${from}/${file}`);
  if (isDirectory(real)) throw new PathError(`${file} is a directory, and leases are for files`);
  const repository =
    repositoryAbove(dirname(real)) ?? (root === undefined ? parse(real).root : realPath(resolve(from, root)));
  const path = relative(repository, real);
  if (path.split(sep)[0] === '..' || isAbsolute(path)) {
    throw new PathError(`${file} is in no git repository and not below ${repository}`);
  }
  return { repository, path: path.split(sep).join('/') };
}

/** The top directory of the git repository of a directory, which need not exist. */
export function repositoryOf(directory: string): string | undefined {
  return repositoryAbove(realPath(resolve(directory)));
}

/** The branch that is checked out; undefined where there is none. */
export function branchOf(repository: string): string | undefined {
  const gitDirectory = gitDirectoryIn(repository);
  if (gitDirectory === undefined) return undefined;
  const [, branch] = /^ref: refs\/heads\/(.+)$/m.exec(textOf(join(gitDirectory, 'HEAD')) ?? '') ?? [];
  return branch;
}

/**
 * Reads the directories instead of running git. In a hook, git's environment refers to another repository;
 * and git refuses to read a repository of another user.
 */
function repositoryAbove(directory: string): string | undefined {
  for (let at = directory; ; at = dirname(at)) {
    if (gitDirectoryIn(at) !== undefined) return at;
    if (dirname(at) === at) return undefined;
  }
}

/**
 * The git directory of a repository: `.git` itself, or in worktrees and submodules the directory that the
 * file `.git` names.
 */
function gitDirectoryIn(directory: string): string | undefined {
  const git = join(directory, '.git');
  const [, elsewhere] = /^gitdir: (.+)$/m.exec(textOf(git) ?? '') ?? [];
  const found = elsewhere === undefined ? git : resolve(directory, elsewhere);
  return textOf(join(found, 'HEAD')) === undefined ? undefined : found;
}

/** Resolves every link, also for files that do not exist yet, and takes letter case from the file system. */
function realPath(path: string, links = 0): string {
  try {
    return realpathSync.native(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if ((code !== 'ENOENT' && code !== 'ENOTDIR') || links > linksMax) {
      throw new PathError(`${path} cannot be found out about: ${(error as Error).message}`);
    }
  }
  if (dirname(path) === path) return path;
  const real = join(realPath(dirname(path), links), basename(path));
  const target = linkAt(real);
  return target === undefined ? real : realPath(resolve(dirname(real), target), links + 1);
}

function linkAt(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** The content of a small file; undefined where it does not exist or cannot be read. */
function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

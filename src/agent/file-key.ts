import { readFileSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, parse, relative, resolve, sep } from 'node:path';

/**
 * What a file is called in a lease. Whoever asks, from whichever directory and by whichever link, must come to the same
 * key for the same file, or two agents would hold it at once.
 */
export interface FileKey {
  /** The top of the git repository that the file is in; of a worktree, that worktree's. */
  repository: string;
  /** From there, with slashes. */
  path: string;
}

/** A path that no lease can be for. */
export class PathError extends Error {
  override readonly name = 'PathError';
}

/** As many links in a row as Linux follows. */
const linksMax = 40;

/**
 * The key of a file that need not exist yet. Outside every git repository it is counted from `root`, or where that is
 * left out from the root of the file system, which is the same for everybody.
 */
export function locate(
  file: string,
  { from = process.cwd(), root }: { from?: string; root?: string } = {},
): FileKey {
  if (file.trim() === '' || file.includes('\0')) throw new PathError(`${JSON.stringify(file)} is not a path`);
  // Not `resolve`: it takes a/link/.. for a, and the file system does not.
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

/** The top of the git repository that a directory is in; the directory need not exist. */
export function repositoryOf(directory: string): string | undefined {
  return repositoryAbove(realPath(resolve(directory)));
}

/** The branch that is checked out, or nothing where there is none. */
export function branchOf(repository: string): string | undefined {
  const gitDirectory = gitDirectoryIn(repository);
  if (gitDirectory === undefined) return undefined;
  const [, branch] = /^ref: refs\/heads\/(.+)$/m.exec(textOf(join(gitDirectory, 'HEAD')) ?? '') ?? [];
  return branch;
}

/**
 * Git itself is not asked: in a hook its environment speaks of another repository, and of one that belongs to another
 * user it says nothing.
 */
function repositoryAbove(directory: string): string | undefined {
  for (let at = directory; ; at = dirname(at)) {
    if (gitDirectoryIn(at) !== undefined) return at;
    if (dirname(at) === at) return undefined;
  }
}

/** What `.git` is in the top of a repository: a directory, or in worktrees and submodules a file that names one. */
function gitDirectoryIn(directory: string): string | undefined {
  const git = join(directory, '.git');
  const [, elsewhere] = /^gitdir: (.+)$/m.exec(textOf(git) ?? '') ?? [];
  const found = elsewhere === undefined ? git : resolve(directory, elsewhere);
  return textOf(join(found, 'HEAD')) === undefined ? undefined : found;
}

/** Follows every link, also to files that are yet to be made, and takes letter case from the disk. */
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

/** What a small file says; nothing where there is none or it may not be read. */
function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { git } from './git.ts';

/** The existing hooks must not be changed. */
export class GitHookError extends Error {
  override readonly name = 'GitHookError';
}

const mark = "# Written by 'leasehold hook git install'; 'leasehold hook git uninstall' takes it away.";

/** A hook that git runs after it has made commits. */
interface GitHook {
  name: string;
  /**
   * The first command of the hook. Another commit may follow at once in the same working tree, so the hook
   * determines its commits before anything else.
   */
  first: string;
  /** Pipes standard input to the hook that existed before. */
  input: string;
  /** The last command of the hook. */
  last(command: string): string;
}

/**
 * Git runs post-commit for commit, amend, cherry-pick, revert and most rebases. It runs post-merge for merges
 * that it commits itself and for fast-forwards. It runs post-rewrite for every rebase, also for those without
 * post-commit.
 */
const hooks: readonly GitHook[] = [
  {
    name: 'post-commit',
    first: 'commit="$(git rev-parse --verify HEAD)"',
    input: '',
    last: (command) => `${command} hook git post-commit "$commit"`,
  },
  {
    name: 'post-merge',
    first: 'before="$(git rev-parse --verify ORIG_HEAD)" after="$(git rev-parse --verify HEAD)"',
    input: '',
    // After a squash no commit exists yet.
    last: (command) => `[ "$1" = 1 ] || ${command} hook git post-merge "$before" "$after"`,
  },
  {
    name: 'post-rewrite',
    first: 'rewritten="$(cat)"',
    input: 'printf \'%s\\n\' "$rewritten" | ',
    // For an amended commit, post-commit has run already.
    last: (command) => `[ "$1" = amend ] || printf '%s\\n' "$rewritten" | ${command} hook git post-rewrite`,
  },
];

const keptName = ({ name }: GitHook): string => `${name}.before-leasehold`;

/**
 * The text of a hook. It runs the hook that existed before, then its own command, and exits with the earlier
 * hook's exit code. The commit exists by then, and nothing here can make it fail.
 */
const script = (hook: GitHook, command: string): string => `#!/bin/sh
${mark}
${hook.first}
kept="$(dirname -- "$0")/${keptName(hook)}"
code=0
if [ -x "$kept" ]; then
  ${hook.input}"$kept" "$@"
  code=$?
fi
${hook.last(command)}
exit $code
`;

/** The lines to add to hooks that another tool writes. */
const lines = (folder: string, command: string): string =>
  hooks
    .map((hook) => {
      const first = hook.first.replace(/^/gm, '  ');
      return `${join(folder, hook.name)}:\n${first}\n  ${hook.last(command)}`;
    })
    .join('\n');

/**
 * Installs the hooks where git searches for them, in front of existing hooks. Returns a description of the
 * changes.
 */
export async function installGitHook(directory: string, command: string): Promise<string> {
  const folder = await hooksFolder(directory);
  if (isHuskys(folder)) {
    throw new GitHookError(
      `${folder} belongs to husky, which writes it anew; add these lines\n${lines(dirname(folder), command)}`,
    );
  }
  for (const hook of hooks) {
    const [file, kept] = [join(folder, hook.name), join(folder, keptName(hook))];
    if (isForeign(file) && isThere(kept))
      throw new GitHookError(`${file} and ${kept} are both hooks of others; put them together first`);
  }
  mkdirSync(folder, { recursive: true });
  return hooks.map((hook) => install(folder, hook, command)).join('\n');
}

function install(folder: string, hook: GitHook, command: string): string {
  const [file, kept] = [join(folder, hook.name), join(folder, keptName(hook))];
  const text = script(hook, command);
  const present = textOf(file);
  if (present === text) return `${file} is there already`;
  const wasForeign = isForeign(file);
  const aside = join(folder, `${hook.name}.leasehold-new`);
  writeFileSync(aside, text);
  chmodSync(aside, 0o755);
  if (wasForeign) renameSync(file, kept);
  renameSync(aside, file);
  if (wasForeign) return `wrote ${file}; it runs the hook that was there before, which is ${kept} now`;
  return present === undefined ? `wrote ${file}` : `wrote ${file} anew; it was of another version or place`;
}

/** Removes the hooks and restores those that existed before. */
export async function uninstallGitHook(directory: string): Promise<string> {
  const folder = await hooksFolder(directory);
  return hooks.map((hook) => uninstall(folder, hook)).join('\n');
}

function uninstall(folder: string, hook: GitHook): string {
  const [file, kept] = [join(folder, hook.name), join(folder, keptName(hook))];
  if (textOf(file)?.includes(mark) !== true) return `${file} is no hook of Leasehold`;
  if (!isThere(kept)) {
    rmSync(file);
    return `removed ${file}`;
  }
  renameSync(kept, file);
  return `removed ${file}, and put back the hook that was there before`;
}

const isForeign = (file: string): boolean => isThere(file) && textOf(file)?.includes(mark) !== true;

/**
 * Where git searches for hooks: core.hooksPath applies, relative to the top directory, and worktrees share
 * their hooks.
 */
async function hooksFolder(directory: string): Promise<string> {
  const top = await git(directory, 'rev-parse', '--show-toplevel');
  return resolve(top, await git(top, 'rev-parse', '--git-path', 'hooks'));
}

/** Husky's hooks find their script by the name under which git calls them, so they cannot be renamed. */
const isHuskys = (folder: string): boolean => basename(folder) === '_' && existsSync(join(folder, 'h'));

function textOf(file: string): string | undefined {
  return existsSync(file) ? readFileSync(file, 'utf8') : undefined;
}

/** A dangling link exists too. */
const isThere = (file: string): boolean => lstatSync(file, { throwIfNoEntry: false }) !== undefined;

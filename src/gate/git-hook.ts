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

/** The hooks are as they must not be touched. */
export class GitHookError extends Error {
  override readonly name = 'GitHookError';
}

/** The hook that was there before; ours runs it first. */
const keptName = 'post-commit.before-leasehold';
const mark = "# Written by 'leasehold hook git install'; 'leasehold hook git uninstall' takes it away.";

/**
 * The hook. The one that was there before has the first word and the last: its exit code is the hook's. A commit is made
 * by then, and nothing here can fail it.
 */
const script = (command: string): string => `#!/bin/sh
${mark}
kept="$(dirname -- "$0")/${keptName}"
code=0
if [ -x "$kept" ]; then
  "$kept" "$@"
  code=$?
fi
${line(command)}
exit $code
`;

const line = (command: string): string => `${command} hook git post-commit`;

/** Puts the hook where git looks for it, in front of one that is there; answers with what was done, in words. */
export async function installGitHook(directory: string, command: string): Promise<string> {
  const folder = await hooksFolder(directory);
  const file = join(folder, 'post-commit');
  const kept = join(folder, keptName);
  if (isHuskys(folder)) {
    throw new GitHookError(
      `${folder} belongs to husky, which writes it anew; add this line to ${join(dirname(folder), 'post-commit')}: ${line(command)}`,
    );
  }
  const text = script(command);
  const present = textOf(file);
  if (present === text) return `${file} is there already`;
  const isOurs = present?.includes(mark) === true;
  const isForeign = !isOurs && isThere(file);
  if (isForeign && isThere(kept)) {
    throw new GitHookError(`${file} and ${kept} are both hooks of others; put them together first`);
  }
  mkdirSync(folder, { recursive: true });
  const aside = join(folder, 'post-commit.leasehold-new');
  writeFileSync(aside, text);
  chmodSync(aside, 0o755);
  if (isForeign) renameSync(file, kept);
  renameSync(aside, file);
  return isForeign
    ? `wrote ${file}; it runs the hook that was there before, which is ${kept} now`
    : `wrote ${file}`;
}

/** Takes the hook away and puts back the one that was there before. */
export async function uninstallGitHook(directory: string): Promise<string> {
  const folder = await hooksFolder(directory);
  const file = join(folder, 'post-commit');
  const kept = join(folder, keptName);
  if (textOf(file)?.includes(mark) !== true) return `${file} is no hook of Leasehold`;
  if (!isThere(kept)) {
    rmSync(file);
    return `removed ${file}`;
  }
  renameSync(kept, file);
  return `removed ${file}, and put back the hook that was there before`;
}

/** Where git looks for hooks: core.hooksPath has its say, counted from the top, and worktrees share theirs. */
async function hooksFolder(directory: string): Promise<string> {
  const top = await git(directory, 'rev-parse', '--show-toplevel');
  return resolve(top, await git(top, 'rev-parse', '--git-path', 'hooks'));
}

/** Its hooks go by the name that they are called by, and would find nothing to run under another one. */
const isHuskys = (folder: string): boolean => basename(folder) === '_' && existsSync(join(folder, 'h'));

function textOf(file: string): string | undefined {
  return existsSync(file) ? readFileSync(file, 'utf8') : undefined;
}

/** A link that leads nowhere is there too. */
const isThere = (file: string): boolean => lstatSync(file, { throwIfNoEntry: false }) !== undefined;

import { realpathSync } from 'node:fs';
import { relative, sep } from 'node:path';
import { ServerError } from '../cli/server-client.ts';
import type { FileLease, FilesApi } from './files-api.ts';
import { filesOfCommit, git } from './git.ts';
import { ownerVariable } from './guard.ts';
import type { Notes } from './notes.ts';
import { repositoryOf } from './paths.ts';
import { ancestors } from './processes.ts';
import { ownerName, shown } from './words.ts';

/**
 * Gives back the files of the last commit that belong to whoever made it: the owner that the variable names, or else
 * those that the agent among this process's ancestors acts for. Files of others are reported and stay theirs. Answers
 * with what there is to be said; what cannot be done is thrown.
 */
export async function releaseCommitted(
  api: FilesApi,
  notes: Notes,
  { directory = process.cwd(), named = process.env[ownerVariable] } = {},
): Promise<string[]> {
  const committers = named ? [named] : ownersAmongAncestors(notes);
  const top = realpathSync.native(await git(directory, 'rev-parse', '--show-toplevel'));
  const repository = repositoryOf(top) ?? '/';
  const below = relative(repository, top).split(sep).join('/');
  const committed = new Set(
    (await filesOfCommit(directory)).map((file) => (below === '' ? file : `${below}/${file}`)),
  );
  const held = (await leasesOf(api, repository, committers)).filter(({ path }) => committed.has(path));
  const words: string[] = [];
  for (const ownerId of committers) {
    const ours = held.filter((lease) => lease.owner_id === ownerId);
    if (ours.length === 0) continue;
    const { not_released } = await api.release(ownerId, ours, 'COMMITTED');
    for (const { path, detail } of not_released)
      words.push(`${shown(path)} was committed and not given back: ${detail}`);
  }
  const others = held.filter((lease) => !committers.includes(lease.owner_id));
  return [...words, ...others.map(othersWords)];
}

/** Whoever holds nothing has nothing to give back, and is not told that no server answers. */
async function leasesOf(
  api: FilesApi,
  repository: string,
  committers: readonly string[],
): Promise<FileLease[]> {
  try {
    return await api.leases({ repository });
  } catch (error) {
    if (committers.length === 0 && error instanceof ServerError && error.isUnreachable) return [];
    throw error;
  }
}

const othersWords = ({ path, owner_id, owner }: FileLease): string =>
  `${shown(path)} was committed, and stays with ${ownerName(owner_id, owner)}`;

/** The nearest ancestor that some owners act for is the agent; a session and those it has sent out share it. */
function ownersAmongAncestors(notes: Notes): string[] {
  for (const ancestor of ancestors()) {
    const owners = notes.of(ancestor);
    if (owners.length > 0) return owners.map(({ owner_id }) => owner_id);
  }
  return [];
}

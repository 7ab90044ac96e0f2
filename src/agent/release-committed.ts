import { realpathSync } from 'node:fs';
import { relative, sep } from 'node:path';
import { ServerError } from '../client/http-client.ts';
import { repositoryOf } from './file-key.ts';
import type { FileLease, FilesApi } from './files-client.ts';
import { committedSince, filesBetween, filesOfCommit, filesOfCommits, git, unchangedFiles } from './git.ts';
import { ownerVariable } from './guard.ts';
import { ownerName, shown } from './messages.ts';
import { ancestors } from './process-tree.ts';
import type { SessionStore } from './session-store.ts';

/** The commits that git has made. */
export type Made = { commits: readonly string[] } | { from: string; to: string };

/**
 * Gives back the files of commits that belong to the committer: the owner that the variable names, or else the owners that
 * the agent among this process's ancestors acts for. Files of others are reported and stay theirs. Answers with what there
 * is to be said; what cannot be done is thrown.
 *
 * A hook learns of its commit a moment after git made it, and another commit may have followed by then. So the committer's
 * files are given back as well that were committed since they were acquired and are unchanged since.
 */
export async function releaseCommitted(
  api: FilesApi,
  notes: SessionStore,
  made: Made,
  { directory = process.cwd(), named = process.env[ownerVariable] } = {},
): Promise<string[]> {
  const committers = named ? [named] : ownersAmongAncestors(notes);
  const top = realpathSync.native(await git(directory, 'rev-parse', '--show-toplevel'));
  const repository = repositoryOf(top) ?? '/';
  const below = relative(repository, top).split(sep).join('/');
  /** A file's path in leases, from its path in git. */
  const leased = (file: string) => (below === '' ? file : `${below}/${file}`);
  const committed = new Set((await filesOf(directory, made)).map(leased));
  const all = await leasesOf(api, repository, committers);
  const held = all.filter(({ path }) => committed.has(path));
  const isOurs = ({ owner_id }: FileLease) => committers.includes(owner_id);
  const missed = all.filter((lease) => isOurs(lease) && !committed.has(lease.path));
  const ours = [...held.filter(isOurs), ...(await committedMeanwhile(top, leased, missed))];
  const words: string[] = [];
  for (const ownerId of committers) {
    const given = ours.filter((lease) => lease.owner_id === ownerId);
    if (given.length === 0) continue;
    const { not_released } = await api.release(ownerId, given, 'COMMITTED');
    for (const { path, detail } of not_released)
      words.push(`${shown(path)} was committed and not given back: ${shown(detail)}`);
  }
  return [...words, ...held.filter((lease) => !isOurs(lease)).map(othersWords)];
}

function filesOf(directory: string, made: Made): Promise<string[]> {
  if ('from' in made) return filesBetween(directory, made.from, made.to);
  const [first, ...others] = made.commits;
  return first !== undefined && others.length === 0
    ? filesOfCommit(directory, first)
    : filesOfCommits(directory, made.commits);
}

/** Those of these leases whose file was committed since it was acquired, and is unchanged since. */
async function committedMeanwhile(
  top: string,
  leased: (file: string) => string,
  leases: readonly FileLease[],
): Promise<FileLease[]> {
  if (leases.length === 0) return [];
  const acquiredAtMs = ({ acquired_at }: FileLease) => Date.parse(acquired_at);
  const sinceMs = Math.min(...leases.map(acquiredAtMs));
  const byPath = new Map(leases.map((lease) => [lease.path, lease]));
  const candidates = [...(await committedSince(top, sinceMs))].filter(([file, committedAtMs]) => {
    const lease = byPath.get(leased(file));
    return lease !== undefined && committedAtMs > acquiredAtMs(lease);
  });
  if (candidates.length === 0) return [];
  const unchanged = await unchangedFiles(
    top,
    candidates.map(([file]) => file),
  );
  return unchanged.flatMap((file) => byPath.get(leased(file)) ?? []);
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
function ownersAmongAncestors(notes: SessionStore): string[] {
  for (const ancestor of ancestors()) {
    const owners = notes.of(ancestor);
    if (owners.length > 0) return owners.map(({ owner_id }) => owner_id);
  }
  return [];
}

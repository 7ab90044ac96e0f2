import { realpathSync } from 'node:fs';
import { relative, sep } from 'node:path';
import { ServerError } from '../client/http-client.ts';
import { repositoryOf } from './file-key.ts';
import type { FileLease, FilesClient } from './files-client.ts';
import { committedSince, filesBetween, filesOfCommit, filesOfCommits, git, unchangedFiles } from './git.ts';
import { ownerVariable } from './guard.ts';
import { ownerName, shown } from './messages.ts';
import { ancestors } from './process-tree.ts';
import type { SessionStore } from './session-store.ts';

/** The commits that git has made: a list, or a range. */
export type Made = { commits: readonly string[] } | { from: string; to: string };

/**
 * Releases the committer's files that the commits contain. The committer is the owner that the variable
 * names, or else the owners of the agent among this process's ancestors. Files of other owners are reported
 * and stay with them. Returns messages for people; errors are thrown.
 *
 * A hook learns of its commit a moment after git made it, and another commit may have followed by then. So
 * the function also releases the committer's files that were committed after they were acquired and are
 * unchanged since.
 */
export async function releaseCommitted(
  api: FilesClient,
  notes: SessionStore,
  made: Made,
  { directory = process.cwd(), named = process.env[ownerVariable] } = {},
): Promise<string[]> {
  const committers = named ? [named] : ownersAmongAncestors(notes);
  const top = realpathSync.native(await git(directory, 'rev-parse', '--show-toplevel'));
  const repository = repositoryOf(top) ?? '/';
  const below = relative(repository, top).split(sep).join('/');
  /** Converts a file's path in git to its path in leases. */
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

/** The leases whose file was committed after it was acquired, and is unchanged since. */
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

/** A committer without leases has nothing to release, so an unreachable server is not reported to it. */
async function leasesOf(
  api: FilesClient,
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

/** The nearest ancestor with owners is the agent; a session and its sub-agents share it. */
function ownersAmongAncestors(notes: SessionStore): string[] {
  for (const ancestor of ancestors()) {
    const owners = notes.of(ancestor);
    if (owners.length > 0) return owners.map(({ owner_id }) => owner_id);
  }
  return [];
}

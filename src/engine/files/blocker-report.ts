import type { Blocked, Blocker } from '../../domain/files/file-lease.ts';
import type { ContendedFile } from '../../store/sql/files/contentions.ts';

/**
 * The answer for files of one contention in the same state: that they wait for the retry, or the full report
 * of the halt.
 */
export function blockersOf(files: readonly ContendedFile[], nowMs: number): Blocked {
  const [first] = files;
  if (!first) throw new Error('a contention has no files');
  const { contentionId, ownerId, repository, deniedAtMs, retryAtMs } = first;
  const paths = files.map(({ path }) => path);
  const blockers = files.map((file) => blockerOf(file, nowMs));
  const request = { contentionId, ownerId, repository, paths, deniedAtMs, blockers };
  if (first.state === 'CONTENDED') {
    const retryAfterMs = Math.max(0, retryAtMs - nowMs);
    return { kind: 'contended', contention: { ...request, retryAtMs, retryAfterMs } };
  }
  const { retriedAtMs, haltedAtMs, keptInstruction } = first;
  if (retriedAtMs === null || haltedAtMs === null)
    throw new Error(`contention ${contentionId} has halted and does not know when`);
  // A holder that released the file and took it again meanwhile has another lease than at the denial.
  const blockerChanged = files.some(
    ({ blockerId, blockerAcquiredAtMs, blocker }) =>
      blockerId !== blocker.ownerId || blockerAcquiredAtMs !== blocker.acquiredAtMs,
  );
  const report = { ...request, retriedAtMs, haltedAtMs, blockerChanged, keptInstruction };
  return { kind: 'halted', report };
}

const blockerOf = ({ path, blocker }: ContendedFile, nowMs: number): Blocker => ({
  path,
  ownerId: blocker.ownerId,
  owner: blocker.profile,
  acquiredAtMs: blocker.acquiredAtMs,
  lastHeartbeatAtMs: blocker.lastHeartbeatAtMs,
  ageMs: Math.max(0, nowMs - blocker.acquiredAtMs),
});

/** The files of several contentions as answers, in their order: one for each contention and state. */
export function blockedOnes(files: readonly ContendedFile[], nowMs: number): Blocked[] {
  const groups = new Map<string, ContendedFile[]>();
  for (const file of files) {
    const name = `${file.contentionId} ${file.state}`;
    const group = groups.get(name);
    if (group) group.push(file);
    else groups.set(name, [file]);
  }
  return [...groups.values()].map((group) => blockersOf(group, nowMs));
}

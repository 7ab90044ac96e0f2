/** How tests below the faces acquire files, and hold up those who want the same rows. */

import type { BlockerReport, Contention, FileLease, FileOutcome } from '../../src/domain/files/file-lease.ts';
import { fileReleaseOf, fileRequestOf } from '../../src/domain/requests/files.ts';
import type { Database } from '../../src/store/database.ts';
import { caller, type TestedEngine } from './jobs.ts';

export const repository = 'r';

export const acquireFiles = (
  engine: TestedEngine,
  ownerId: string,
  ...paths: string[]
): Promise<FileOutcome> =>
  engine.files.acquire(fileRequestOf({ owner_id: ownerId, repository, paths }), caller);

/** The same for an owner that is a sub-agent, or that acts for a caller. */
export const acquireFilesAs = (
  engine: TestedEngine,
  { ownerId, parentId, callerId }: { ownerId: string; parentId?: string; callerId?: string },
  ...paths: string[]
): Promise<FileOutcome> =>
  engine.files.acquire(
    fileRequestOf({
      owner_id: ownerId,
      caller_id: callerId,
      repository,
      paths,
      owner: { parent_owner_id: parentId },
    }),
    caller,
  );

function outcomeOf<Kind extends FileOutcome['kind']>(
  outcome: FileOutcome,
  kind: Kind,
): Extract<FileOutcome, { kind: Kind }> {
  if (outcome.kind !== kind) throw new Error(`it was ${outcome.kind}, not ${kind}`);
  return outcome as Extract<FileOutcome, { kind: Kind }>;
}

export const granted = async (
  engine: TestedEngine,
  ownerId: string,
  ...paths: string[]
): Promise<FileLease[]> => outcomeOf(await acquireFiles(engine, ownerId, ...paths), 'granted').leases;

export const contended = async (
  engine: TestedEngine,
  ownerId: string,
  ...paths: string[]
): Promise<Contention> => outcomeOf(await acquireFiles(engine, ownerId, ...paths), 'contended').contention;

export const halted = async (
  engine: TestedEngine,
  ownerId: string,
  ...paths: string[]
): Promise<BlockerReport> => outcomeOf(await acquireFiles(engine, ownerId, ...paths), 'halted').report;

export const releaseFiles = (engine: TestedEngine, ownerId: string, ...paths: string[]) =>
  releaseFilesAs(engine, ownerId, 'COMMITTED', ...paths);

export const releaseFilesAs = (
  engine: TestedEngine,
  ownerId: string,
  reason: 'COMMITTED' | 'FAILED' | 'ENDED',
  ...paths: string[]
) => engine.files.release(fileReleaseOf({ owner_id: ownerId, repository, paths, reason }), caller);

/** What an owner's sign of life comes to: 'extended', or the code of its loss. */
export async function beatOwner(engine: TestedEngine, ownerId: string): Promise<string> {
  const [verdict] = await Promise.all(await engine.files.heartbeatEach([{ ownerId, holder: null }]));
  return verdict?.kind === 'lost' ? verdict.code : (verdict?.kind ?? 'nothing');
}

/** Who holds what, by path. */
export async function holdersOf(database: Database): Promise<Record<string, string>> {
  const rows = await database.query<{ path: string; owner_id: string }>(
    'select path, owner_id from file_leases where state = 0 order by path',
    [],
  );
  return Object.fromEntries(rows.map(({ path, owner_id }) => [path, owner_id]));
}

/** Leaves nothing of an earlier test. Owners stay, because servers remember that those have rows. */
export async function wipeFiles(database: Database): Promise<void> {
  for (const table of ['file_leases', 'file_contentions', 'file_losses', 'file_events', 'outages'])
    await database.query(`delete from ${table}`, []);
  await database.query(
    'update file_owners set state = 0, check_at = null, stopped_at = null, idle_at = null, ended_at = null',
    [],
  );
  await database.query('update pulse set alive_at = clock_timestamp()', []);
}

import type { FileLease } from '../../domain/file-lease.ts';
import type { Sql } from '../sql.ts';
import { type FileLeaseRecord, fileLeaseColumns, held, toFileLease } from './file-rows.ts';

export interface FileLeaseFilter {
  repository: string | null;
  ownerId: string | null;
  /** Only leases with a lower fence. */
  cursor: string | null;
  limit: number;
}

/** Leases that are held, newest first. What is asked for chooses the index, which is in this order already. */
export async function listFileLeases(
  sql: Sql,
  { repository, ownerId, cursor, limit }: FileLeaseFilter,
  signal?: AbortSignal,
): Promise<FileLease[]> {
  const params: unknown[] = [limit];
  const conditions = [`file.state = ${held}`];
  const add = (condition: string, value: unknown) => {
    params.push(value);
    conditions.push(`${condition} $${params.length}`);
  };
  if (ownerId !== null) add('file.owner_id =', ownerId);
  if (repository !== null) add('file.repository =', repository);
  if (cursor !== null) add('file.fence <', cursor);
  const rows = await sql.query<FileLeaseRecord>(
    `select ${fileLeaseColumns('file', 'owner')}
    from file_leases file join file_owners owner on owner.owner_id = file.owner_id
    where ${conditions.join(' and ')} order by file.fence desc limit $1`,
    params,
    signal,
  );
  return rows.map(toFileLease);
}

/** Sessions of browsers. Rows are inserted at a login, and deleted when the session has ended. */
import type { InferEntity } from '@mikro-orm/core';
import type { ProvidedIdentity, Session } from '../../../domain/access/session.ts';
import { type EntitySql, timeMs } from '../../connection/sql.ts';
import { SessionRow } from '../../schema/access-entities.ts';

const sessionOf = (row: InferEntity<typeof SessionRow>): Session => ({
  hash: row.session_hash,
  principalId: row.principal_id,
  identity: (row.identity ?? null) as ProvidedIdentity | null,
  createdAtMs: timeMs(row.created_at),
  createdFrom: row.created_from,
  expiresAtMs: timeMs(row.expires_at),
  lastUsedAtMs: timeMs(row.last_used_at),
});

export async function insertSession(sql: EntitySql, session: Session): Promise<void> {
  await sql.em().insert(SessionRow, {
    session_hash: session.hash,
    principal_id: session.principalId,
    identity: session.identity as Record<string, unknown> | null,
    created_at: new Date(session.createdAtMs),
    created_from: session.createdFrom,
    expires_at: new Date(session.expiresAtMs),
    last_used_at: new Date(session.lastUsedAtMs),
  });
}

export async function findSessions(
  sql: EntitySql,
  hashes: readonly string[],
  signal?: AbortSignal,
): Promise<Session[]> {
  const rows = await sql.em(signal).find(SessionRow, { session_hash: { $in: [...hashes] } });
  return rows.map(sessionOf);
}

/** Returns whether there was one. */
export const deleteSession = async (sql: EntitySql, hash: string): Promise<boolean> =>
  (await sql.em().nativeDelete(SessionRow, { session_hash: hash })) > 0;

/** Deletes the oldest sessions of a principal, so that at most `keep` are left. */
export async function deleteOldestSessions(sql: EntitySql, principalId: string, keep: number): Promise<void> {
  const rows = await sql
    .em()
    .find(SessionRow, { principal_id: principalId }, { orderBy: { created_at: 'desc' }, offset: keep });
  if (rows.length === 0) return;
  const hashes = rows.map(({ session_hash }) => session_hash);
  await sql.em().nativeDelete(SessionRow, { session_hash: { $in: hashes } });
}

/** Deletes the sessions that have expired or were not used since `idleSinceMs`. */
export async function deleteEndedSessions(
  sql: EntitySql,
  { nowMs, idleSinceMs }: { nowMs: number; idleSinceMs: number },
): Promise<void> {
  await sql.em().nativeDelete(SessionRow, {
    $or: [{ expires_at: { $lt: new Date(nowMs) } }, { last_used_at: { $lt: new Date(idleSinceMs) } }],
  });
}

export interface SessionUse {
  hash: string;
  atMs: number;
}

export async function recordSessionUses(sql: EntitySql, uses: readonly SessionUse[]): Promise<void> {
  for (const { hash, atMs } of uses) {
    const at = new Date(atMs);
    const unused = { session_hash: hash, last_used_at: { $lt: at } };
    await sql.em().nativeUpdate(SessionRow, unused, { last_used_at: at });
  }
}

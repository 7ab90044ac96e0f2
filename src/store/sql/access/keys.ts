/** Keys, and the revision that every change of a key raises. Changes run in a transaction. */
import { type InferEntity, raw } from '@mikro-orm/core';
import type { Key, KeyDraft } from '../../../domain/access/key.ts';
import { type KeyLimits, serverLimits } from '../../../domain/access/key-limits.ts';
import type { Role } from '../../../domain/access/roles.ts';
import { type Scopes, scopeKinds } from '../../../domain/access/scopes.ts';
import { type EntitySql, timeMs } from '../../connection/sql.ts';
import { ApiKey, AuthState } from '../../schema/access-entities.ts';

/** A key with the hashes of its secrets, in hexadecimal digits. */
export interface StoredKey extends Key {
  secretHash: string;
  previousHash: string | null;
}

type Row = InferEntity<typeof ApiKey>;

const scopesIn = (stored: Record<string, string[]>): Scopes =>
  Object.fromEntries(scopeKinds.map((kind) => [kind, stored[kind] ?? []])) as unknown as Scopes;

const keyOf = (row: Row): StoredKey => ({
  keyId: row.key_id,
  lineage: row.lineage,
  name: row.name,
  roles: row.roles as Role[],
  scopes: scopesIn(row.scopes),
  workerIds: row.worker_ids,
  seesPayloads: row.sees_payloads,
  limits: { ...serverLimits, ...row.limits },
  note: row.note ?? null,
  createdAtMs: timeMs(row.created_at),
  createdBy: row.created_by,
  expiresAtMs: timeMs(row.expires_at ?? null),
  revokedAtMs: timeMs(row.revoked_at ?? null),
  revokedBy: row.revoked_by ?? null,
  previousUntilMs: timeMs(row.previous_until ?? null),
  lastUsedAtMs: timeMs(row.last_used_at ?? null),
  lastUsedFrom: row.last_used_from ?? null,
  secretHash: row.secret_hash,
  previousHash: row.previous_hash ?? null,
});

/** Only the limits that the key has; null if it has none. */
const storedLimits = (limits: KeyLimits): Record<string, number> | null => {
  const own = Object.entries(limits).filter((entry): entry is [string, number] => entry[1] !== null);
  return own.length === 0 ? null : Object.fromEntries(own);
};

const now = () => raw('clock_timestamp()');

export async function readRevision(sql: EntitySql): Promise<string> {
  const state = await sql.em().findOne(AuthState, { auth_state_id: 1 });
  if (!state) throw new Error('the revision of the keys is missing');
  return state.revision;
}

/** Tells servers to read the keys and the quotas again. */
export async function raiseRevision(sql: EntitySql): Promise<void> {
  await sql.em().nativeUpdate(AuthState, { auth_state_id: 1 }, { revision: raw('revision + 1') });
}

export const readKeys = async (sql: EntitySql): Promise<StoredKey[]> =>
  (await sql.em().find(ApiKey, {}, { orderBy: { created_at: 'asc', key_id: 'asc' } })).map(keyOf);

const inForce = () => ({
  revoked_at: null,
  $or: [{ expires_at: null }, { expires_at: { $gt: now() } }],
});

/** The keys that are neither revoked nor expired, by the database's clock. */
export const readKeysInForce = async (sql: EntitySql, signal?: AbortSignal): Promise<Key[]> =>
  (await sql.em(signal).find(ApiKey, inForce())).map(keyOf);

export const countKeysInForce = (sql: EntitySql): Promise<number> => sql.em().count(ApiKey, inForce());

export interface KeyOrigin {
  name: string;
  createdBy: string;
  scopes: Scopes;
  isInForce: boolean;
}

/** Which keys created which, by their names. */
export async function readOrigins(sql: EntitySql): Promise<KeyOrigin[]> {
  const fields = ['key_id', 'name', 'created_by', 'scopes'] as const;
  const current = new Set((await sql.em().find(ApiKey, inForce(), { fields: ['key_id'] })).map(idOf));
  const all = await sql.em().find(ApiKey, {}, { fields, orderBy: { created_at: 'asc' } });
  return all.map((row) => ({
    name: row.name,
    createdBy: row.created_by,
    scopes: scopesIn(row.scopes),
    isInForce: current.has(row.key_id),
  }));
}

const idOf = ({ key_id }: { key_id: string }): string => key_id;

/** Deletes keys that were revoked or have expired `days` ago, and the oldest of more than `endedMax`. */
export async function deleteEndedKeys(sql: EntitySql, days: number, endedMax: number): Promise<void> {
  const until = () => raw("clock_timestamp() - ?::float8 * interval '1 day'", [days]);
  await sql.em().nativeDelete(ApiKey, {
    $or: [{ revoked_at: { $lt: until() } }, { expires_at: { $lt: until() } }],
  });
  const surplus = await sql
    .em()
    .find(
      ApiKey,
      { $or: [{ revoked_at: { $ne: null } }, { expires_at: { $lte: now() } }] },
      { fields: ['key_id'], orderBy: { created_at: 'desc', key_id: 'desc' }, offset: endedMax },
    );
  if (surplus.length > 0) await sql.em().nativeDelete(ApiKey, { key_id: { $in: surplus.map(idOf) } });
}

export async function findKey(sql: EntitySql, keyId: string): Promise<StoredKey | undefined> {
  const row = await sql.em().findOne(ApiKey, { key_id: keyId });
  return row ? keyOf(row) : undefined;
}

/** Fails with a unique violation if a key in use has the name. */
export async function insertKey(
  sql: EntitySql,
  draft: KeyDraft & { keyId: string; lineage: string; secretHash: string; createdBy: string },
): Promise<StoredKey | undefined> {
  await sql.em().insert(ApiKey, {
    key_id: draft.keyId,
    lineage: draft.lineage,
    name: draft.name,
    roles: [...draft.roles],
    scopes: { ...draft.scopes } as unknown as Record<string, string[]>,
    worker_ids: [...draft.workerIds],
    sees_payloads: draft.seesPayloads,
    limits: storedLimits(draft.limits),
    secret_hash: draft.secretHash,
    note: draft.note,
    created_at: now(),
    created_by: draft.createdBy,
    expires_at: draft.expiresAtMs === null ? null : new Date(draft.expiresAtMs),
  });
  await raiseRevision(sql);
  return findKey(sql, draft.keyId);
}

/** Gives a key a new secret. The old secret counts for `overlapS` more seconds. */
export async function rotateKey(
  sql: EntitySql,
  { keyId, secretHash, overlapS }: { keyId: string; secretHash: string; overlapS: number },
): Promise<StoredKey | undefined> {
  const changed = await sql.em().nativeUpdate(
    ApiKey,
    { key_id: keyId, revoked_at: null },
    {
      secret_hash: secretHash,
      previous_hash: raw('secret_hash'),
      previous_until: raw("clock_timestamp() + ?::float8 * interval '1 second'", [overlapS]),
    },
  );
  if (changed === 0) return undefined;
  await raiseRevision(sql);
  return findKey(sql, keyId);
}

/** A key that is revoked already stays as it is. */
export async function revokeKey(
  sql: EntitySql,
  { keyId, revokedBy }: { keyId: string; revokedBy: string },
): Promise<StoredKey | undefined> {
  const changed = await sql
    .em()
    .nativeUpdate(ApiKey, { key_id: keyId, revoked_at: null }, { revoked_at: now(), revoked_by: revokedBy });
  if (changed > 0) await raiseRevision(sql);
  return findKey(sql, keyId);
}

export interface KeyUse {
  keyId: string;
  atMs: number;
  from: string;
}

/** Records the last use of keys. It raises no revision. */
export async function recordUses(sql: EntitySql, uses: readonly KeyUse[]): Promise<void> {
  for (const { keyId, atMs, from } of uses)
    await sql
      .em()
      .nativeUpdate(ApiKey, { key_id: keyId }, { last_used_at: new Date(atMs), last_used_from: from });
}

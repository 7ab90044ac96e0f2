/** Creates, rotates, revokes and lists keys, and writes each of these acts into the audit. */
import type { AuditAction, AuditEvent } from '../../domain/access/audit.ts';
import type { Key, KeyDraft } from '../../domain/access/key.ts';
import { newKeyId, newKeyText } from '../../domain/access/key-text.ts';
import type { Principal } from '../../domain/access/principal.ts';
import { covers, reachesEverything, scopeKinds } from '../../domain/access/scopes.ts';
import { DomainError, invalid, printable } from '../../domain/errors.ts';
import type { CreateKey, ListAudit } from '../../domain/requests/access.ts';
import { newId } from '../../lib/uuid.ts';
import { type EntitySql, isUniqueViolation } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { listAudit, recordAudit } from '../../store/sql/access/audit.ts';
import {
  countKeysInForce,
  deleteEndedKeys,
  findKey,
  insertKey,
  type KeyOrigin,
  readKeys,
  readOrigins,
  revokeKey,
  rotateKey,
  type StoredKey,
} from '../../store/sql/access/keys.ts';
import type { Caller } from '../context/engine-context.ts';
import type { Page } from '../jobs/job-queries.ts';
import { denied } from './access-control.ts';
import { audited, detailOf } from './audit/audited.ts';
import { auditFilterOf, keyDraftOf } from './key-requests.ts';

/** Keys that may be in force at once, because servers keep all of them in memory. */
const keysMax = 10_000;
/** Keys in force that an administrator of a part has created, itself or through keys that it created. */
const createdKeysMax = 1_000;
/** Revoked and expired keys are deleted after this time, and earlier where there are more of them. */
const endedKeysDays = 30;
const endedKeysMax = 1_000;

/** For how long the old secret of a rotated key counts, by default. */
const overlapDefaultS = 86_400;

/** A key with its text, which is shown this once. */
export interface FreshKey {
  key: Key;
  text: string;
}

export class KeyService {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  create(command: CreateKey, caller: Caller): Promise<FreshKey> {
    return this.createFrom(keyDraftOf(command, Date.now()), caller);
  }

  async createFrom(wanted: KeyDraft, caller: Caller): Promise<FreshKey> {
    requireFreeName(wanted);
    requireNoMore(caller.principal, wanted);
    const draft = { ...wanted, expiresAtMs: expiryWithin(caller.principal, wanted.expiresAtMs) };
    const keyId = newKeyId();
    const { text, hash } = newKeyText(keyId);
    const key = await this.#database.transaction(async (sql) => {
      await deleteEndedKeys(sql, endedKeysDays, endedKeysMax);
      await requireRoom(sql, caller.principal);
      const lineage = newId();
      const createdBy = caller.principal.name;
      const inserted = await insertKey(sql, { ...draft, keyId, lineage, secretHash: hash, createdBy }).catch(
        (error: unknown) => {
          throw isUniqueViolation(error) ? nameInUse(draft.name) : error;
        },
      );
      if (!inserted) throw new Error('the new key was not found');
      await recordAudit(
        sql,
        audited(caller, { action: 'keys.create', target: keyId, detail: createdDetail(draft) }),
      );
      return inserted;
    }, caller.signal);
    return { key: withoutHashes(key), text };
  }

  async rotate(keyId: string, command: { overlap_s?: number | null }, caller: Caller): Promise<FreshKey> {
    const overlapS = command.overlap_s ?? overlapDefaultS;
    const { text, hash } = newKeyText(keyId);
    const key = await this.#change(keyId, caller, 'keys.rotate', `overlap_s=${overlapS}`, (sql) =>
      rotateKey(sql, { keyId, secretHash: hash, overlapS }),
    );
    return { key, text };
  }

  revoke(keyId: string, caller: Caller): Promise<Key> {
    return this.#change(keyId, caller, 'keys.revoke', null, (sql) =>
      revokeKey(sql, { keyId, revokedBy: caller.principal.name }),
    );
  }

  async get(keyId: string, { principal }: Caller): Promise<Key> {
    const key = await findKey(this.#database, keyId);
    if (!key || !isWithin(principal, key)) throw keyNotFound(keyId);
    return withoutHashes(key);
  }

  async list({ principal }: Caller): Promise<Key[]> {
    const keys = await readKeys(this.#database);
    return keys.filter((key) => isWithin(principal, key)).map(withoutHashes);
  }

  async audit(command: ListAudit, { signal }: Caller): Promise<Page<AuditEvent>> {
    const filter = auditFilterOf(command);
    const found = await listAudit(this.#database, { ...filter, limit: filter.limit + 1 }, signal);
    const items = found.slice(0, filter.limit);
    return { items, nextCursor: found.length > filter.limit ? (items.at(-1)?.auditId ?? null) : null };
  }

  async #change(
    keyId: string,
    caller: Caller,
    action: AuditAction,
    detail: string | null,
    write: (sql: Parameters<typeof findKey>[0]) => Promise<StoredKey | undefined>,
  ): Promise<Key> {
    return this.#database.transaction(async (sql) => {
      const before = await findKey(sql, keyId);
      if (!before || !isWithin(caller.principal, before)) throw keyNotFound(keyId);
      const after = await write(sql);
      if (!after) throw new DomainError('illegal_transition', `the key ${keyId} is revoked`);
      await recordAudit(sql, audited(caller, { action, target: keyId, detail }));
      return withoutHashes(after);
    }, caller.signal);
  }
}

/** The owner of the database always finds room, so that no administrator can lock it out. */
async function requireRoom(sql: EntitySql, { kind, name }: Principal): Promise<void> {
  if (kind === 'local') return;
  const count = await countKeysInForce(sql);
  if (count >= keysMax) throw new DomainError('quota_exceeded', `there are ${keysMax} keys in force already`);
  if (count < createdKeysMax) return;
  const origins = await readOrigins(sql);
  const byName = new Map(origins.map((key) => [key.name, key]));
  const inForce = origins.filter((key) => key.isInForce);
  for (const creator of limitedAncestry(name, byName)) {
    const created = inForce.filter((key) => limitedAncestry(key.createdBy, byName).has(creator));
    if (created.length >= createdKeysMax)
      throw new DomainError(
        'quota_exceeded',
        `the key ${printable(creator)} has created ${createdKeysMax} keys in force already`,
      );
  }
}

/** The key itself and those that it comes from, without those that reach everything. */
function limitedAncestry(name: string, byName: ReadonlyMap<string, KeyOrigin>): Set<string> {
  const names = new Set<string>();
  let key = byName.get(name);
  while (key && !names.has(key.name) && !reachesEverything(key.scopes)) {
    names.add(key.name);
    key = byName.get(key.createdBy);
  }
  return names;
}

const createdDetail = ({
  name,
  roles,
  scopes,
  workerIds,
  seesPayloads,
  expiresAtMs,
}: KeyDraft): string | null =>
  detailOf({
    name,
    roles: roles.join(','),
    ...Object.fromEntries(scopeKinds.map((kind) => [kind, scopes[kind].join(',') || null])),
    worker_ids: workerIds.join(',') || null,
    sees_payloads: seesPayloads ? 'true' : null,
    expires_at: expiresAtMs === null ? 'never' : new Date(expiresAtMs).toISOString(),
  });

const nameInUse = (name: string): DomainError =>
  new DomainError('duplicate_request', `a key with the name ${printable(name)} is in use`, { field: 'name' });

const keyNotFound = (keyId: string): DomainError =>
  new DomainError('not_found', `there is no key ${printable(keyId)}`, { field: 'key_id' });

const withoutHashes = ({ secretHash: _, previousHash: __, ...key }: StoredKey): Key => key;

/**
 * An administrator of a part manages only keys that reach no further than its own. A key without scopes is of
 * no part, so only an administrator of everything manages it.
 */
function isWithin({ kind, scopes, workerIds }: Principal, key: Pick<Key, 'scopes' | 'workerIds'>): boolean {
  if (kind === 'local') return true;
  if (!covers(workerIds, key.workerIds)) return false;
  if (reachesEverything(scopes)) return true;
  return (
    scopeKinds.some((name) => key.scopes[name].length > 0) &&
    scopeKinds.every((name) => covers(scopes[name], key.scopes[name]))
  );
}

function requireNoMore(principal: Principal, draft: KeyDraft): void {
  if (!isWithin(principal, draft))
    throw denied('the key would reach further than the credential that creates it, or has no scope');
}

/** Names of principals that are no keys. */
const reservedNames = new Set(['local', 'server', 'system']);

function requireFreeName({ name }: KeyDraft): void {
  if (reservedNames.has(name.toLowerCase()))
    throw invalid('name', `${printable(name)} stands for callers without a key`);
}

/** A key does not outlive the credential that creates it. */
const expiryWithin = ({ expiresAtMs }: Principal, wanted: number | null): number | null =>
  expiresAtMs === null ? wanted : Math.min(expiresAtMs, wanted ?? Number.POSITIVE_INFINITY);

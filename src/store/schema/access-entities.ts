import { defineEntity, p } from '@mikro-orm/core';

const names = () => p.array().columnType('text[]').$type<string[]>();

/** A key of callers, with hashes of its secrets. */
export const ApiKey = defineEntity({
  name: 'ApiKey',
  tableName: 'api_keys',
  uniques: [{ name: 'api_keys_name', properties: ['name'], where: { revoked_at: null } }],
  properties: {
    key_id: p.text().primary(),
    /** The holder of the leases that are taken with it. Rotation keeps it. */
    lineage: p.uuid(),
    name: p.text(),
    roles: names(),
    scopes: p.json<Record<string, string[]>>(),
    worker_ids: names(),
    sees_payloads: p.boolean(),
    /** SHA-256, in hexadecimal digits. */
    secret_hash: p.text(),
    /** The secret before the last rotation, which counts until `previous_until`. */
    previous_hash: p.text().nullable(),
    previous_until: p.datetime().nullable(),
    note: p.text().nullable(),
    created_at: p.datetime(),
    created_by: p.text(),
    expires_at: p.datetime().nullable(),
    revoked_at: p.datetime().nullable(),
    revoked_by: p.text().nullable(),
    last_used_at: p.datetime().nullable(),
    last_used_from: p.text().nullable(),
    /** Limits of this key, in place of those of the server. */
    limits: p.json<Record<string, number>>().nullable(),
  },
});

/** One row: a number that every change of a key raises, so that servers know when to read the keys again. */
export const AuthState = defineEntity({
  name: 'AuthState',
  tableName: 'auth_state',
  properties: { auth_state_id: p.smallint().primary().autoincrement(false), revision: p.bigint('string') },
});

/** Privileged acts and refused calls. Old rows are deleted; triggers refuse every other change. */
export const AuditEventRow = defineEntity({
  name: 'AuditEventRow',
  tableName: 'audit_events',
  indexes: [
    { name: 'audit_events_at', properties: ['at'] },
    { name: 'audit_events_action', properties: ['action', 'audit_id'] },
    { name: 'audit_events_principal', properties: ['principal_id', 'audit_id'] },
  ],
  uniques: [
    {
      name: 'audit_events_addresses',
      properties: ['principal_id', 'peer'],
      where: { action: 'keys.new_address' },
    },
  ],
  properties: {
    audit_id: p.bigint('string').primary().autoincrement(),
    at: p.datetime(),
    principal_kind: p.text(),
    principal_id: p.text(),
    principal_name: p.text(),
    requested_by: p.text().nullable(),
    peer: p.text(),
    action: p.text(),
    target: p.text().nullable(),
    outcome: p.text(),
    detail: p.text().nullable(),
    trace_id: p.text().nullable(),
    method: p.text().nullable(),
    left_out: p.integer().default(0),
  },
});

/** What a tenant may use at most; null is no limit. */
export const TenantQuota = defineEntity({
  name: 'TenantQuota',
  tableName: 'tenant_quotas',
  properties: {
    addon_id: p.text().primary(),
    max_units: p.bigint('string').nullable(),
    max_queued: p.bigint('string').nullable(),
    max_payload_bytes: p.integer().nullable(),
    updated_at: p.datetime(),
    updated_by: p.text(),
  },
});

/** A login in a browser. */
export const SessionRow = defineEntity({
  name: 'SessionRow',
  tableName: 'sessions',
  indexes: [{ name: 'sessions_principal_id', properties: ['principal_id', 'created_at'] }],
  properties: {
    /** SHA-256 of its id, in hexadecimal digits. */
    session_hash: p.text().primary(),
    principal_id: p.text(),
    /** What the identity provider says of the user; null for a session of a key. */
    identity: p.json<Record<string, unknown>>().nullable(),
    created_at: p.datetime(),
    created_from: p.text(),
    expires_at: p.datetime(),
    last_used_at: p.datetime(),
  },
});

export const accessEntities = [ApiKey, AuthState, AuditEventRow, TenantQuota, SessionRow];

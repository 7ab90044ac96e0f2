import { create } from '@bufbuild/protobuf';
import {
  type AuditEvent as AuditEventMessage,
  AuditEventSchema,
  KeyLimitsSchema,
  type Key as KeyMessage,
  KeySchema,
  type KeysService,
  ScopesSchema,
} from '../../../gen/leasehold/v1/keys_pb.js';
import type { AuditEvent } from '../../domain/access/audit.ts';
import type { Key } from '../../domain/access/key.ts';
import type { KeyLimits } from '../../domain/access/key-limits.ts';
import { permissions, reachOf } from '../../domain/access/roles.ts';
import type { Scopes } from '../../domain/access/scopes.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp, toIso } from '../jobs/convert.ts';

/** KeysService: proto in, one engine call, proto out. */
export function keysImplementation({ keys }: Engine): Implementation<typeof KeysService> {
  return {
    async createKey(request, caller) {
      const { scopes } = request;
      const command = parse.createKey({
        name: request.name,
        roles: request.roles,
        scopes: scopes && {
          addon_ids: scopes.addonIds,
          streams: scopes.streams,
          job_types: scopes.jobTypes,
          repositories: scopes.repositories,
        },
        worker_ids: request.workerIds.length === 0 ? undefined : request.workerIds,
        sees_payloads: request.seesPayloads,
        limits: request.limits && {
          submit_per_s: request.limits.submitPerS,
          read_per_s: request.limits.readPerS,
          burst_s: request.limits.burstS,
          max_streams: request.limits.maxStreams,
        },
        note: request.note === '' ? undefined : request.note,
        expires_in_days: request.expiresInDays === 0 ? undefined : request.expiresInDays,
        never_expires: request.neverExpires,
      });
      const { key, text } = await keys.create(command, caller);
      return { key: keyMessage(key), text };
    },

    async listKeys(_request, caller) {
      return { keys: (await keys.list(caller)).map(keyMessage) };
    },

    async getKey({ keyId }, caller) {
      return { key: keyMessage(await keys.get(keyId, caller)) };
    },

    async rotateKey({ keyId, overlapS }, caller) {
      const { key, text } = await keys.rotate(keyId, parse.rotateKey({ overlap_s: overlapS }), caller);
      return { key: keyMessage(key), text };
    },

    async revokeKey({ keyId }, caller) {
      return { key: keyMessage(await keys.revoke(keyId, caller)) };
    },

    async whoAmI(_request, { principal }) {
      return {
        kind: principal.kind,
        id: principal.id,
        name: principal.name,
        roles: [...principal.roles],
        scopes: scopesMessage(principal.scopes),
        workerIds: [...principal.workerIds],
        seesPayloads: principal.seesPayloads,
        expiresAt: optionalTime(principal.expiresAtMs),
        permissions: permissions.filter((one) => reachOf(principal.roles, one) !== undefined),
      };
    },

    async listAuditEvents(request, caller) {
      const command = parse.listAudit({
        since: toIso(request.since, 'since'),
        until: toIso(request.until, 'until'),
        principal_id: request.principalId || undefined,
        action: request.action || undefined,
        outcome: request.outcome || undefined,
        limit: request.limit || undefined,
        cursor: request.cursor,
      });
      const { items, nextCursor } = await keys.audit(command, caller);
      return { events: items.map(auditMessage), nextCursor: nextCursor ?? '' };
    },
  };
}

const optionalTime = (ms: number | null) => (ms === null ? undefined : timestamp(ms));

const scopesMessage = ({ addon_ids, streams, job_types, repositories }: Scopes) =>
  create(ScopesSchema, {
    addonIds: [...addon_ids],
    streams: [...streams],
    jobTypes: [...job_types],
    repositories: [...repositories],
  });

const limitsMessage = (limits: KeyLimits) => {
  const own = Object.entries(limits).filter(([, value]) => value !== null);
  return create(KeyLimitsSchema, Object.fromEntries(own) as Partial<Record<keyof KeyLimits, number>>);
};

const keyMessage = (key: Key): KeyMessage =>
  create(KeySchema, {
    keyId: key.keyId,
    name: key.name,
    roles: [...key.roles],
    scopes: scopesMessage(key.scopes),
    workerIds: [...key.workerIds],
    seesPayloads: key.seesPayloads,
    limits: limitsMessage(key.limits),
    note: key.note ?? '',
    createdAt: timestamp(key.createdAtMs),
    createdBy: key.createdBy,
    expiresAt: optionalTime(key.expiresAtMs),
    revokedAt: optionalTime(key.revokedAtMs),
    revokedBy: key.revokedBy ?? '',
    previousUntil: optionalTime(key.previousUntilMs),
    lastUsedAt: optionalTime(key.lastUsedAtMs),
    lastUsedFrom: key.lastUsedFrom ?? '',
  });

const auditMessage = (event: AuditEvent): AuditEventMessage =>
  create(AuditEventSchema, {
    auditId: BigInt(event.auditId),
    ts: timestamp(event.atMs),
    principalKind: event.principal.kind,
    principalId: event.principal.id,
    principalName: event.principal.name,
    requestedBy: event.requestedBy ?? '',
    peer: event.peer,
    action: event.action,
    target: event.target ?? '',
    outcome: event.outcome,
    detail: event.detail ?? '',
    traceId: event.traceId ?? '',
    method: event.method ?? '',
    leftOut: event.leftOut,
  });

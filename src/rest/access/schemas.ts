import Type, { type Static } from 'typebox';
import { type AuditAction, type AuditEvent, auditActions, auditOutcomes } from '../../domain/access/audit.ts';
import type { Key } from '../../domain/access/key.ts';
import { type Principal, principalKinds } from '../../domain/access/principal.ts';
import { permissions, reachOf, roles } from '../../domain/access/roles.ts';
import type { Scopes } from '../../domain/access/scopes.ts';
import { entity, flag, list, oneOf, orNull, time, whole, word } from '../openapi/schema-types.ts';

const pattern = word('An exact name, or a prefix that ends in `*`.');

const ScopesBody = entity(
  'Scopes',
  'What a credential reaches. `*` is everything, and an empty list nothing.',
  {
    addon_ids: list(pattern, 'The applications or tenants of jobs.'),
    streams: list(pattern, 'The streams of jobs.'),
    job_types: list(pattern, 'The types of jobs.'),
    repositories: list(pattern, 'The repositories of files.'),
  },
);

const rolesBody = list(oneOf(roles, 'A role.'), 'What it may do.');
const workerIds = list(pattern, 'The workers and file owners that it may act as.');
const expiresAt = orNull(time('When it expires; null where it does not.'));

const LimitsBody = entity(
  'KeyLimits',
  "Limits of the key on each server. Null is the server's setting, and 0 is no limit.",
  {
    submit_per_s: orNull(whole('Jobs a second that it may submit, cancel and retry.')),
    read_per_s: orNull(whole('Calls and rows a second that it may read.')),
    burst_s: orNull(whole('Seconds of its rate in one burst.')),
    max_streams: orNull(whole('Streams that it may keep open.')),
  },
);

export const KeyBody = entity('Key', 'A key without its secret.', {
  key_id: word('Identifies the key; it is the first part of its text.'),
  name: word('What people call it.'),
  roles: rolesBody,
  scopes: ScopesBody,
  worker_ids: workerIds,
  sees_payloads: flag('An observer sees payloads, results and errors.'),
  limits: LimitsBody,
  note: orNull(word('For people.')),
  created_at: time('When it was created.'),
  created_by: word('The principal that created it.'),
  expires_at: expiresAt,
  revoked_at: orNull(time('When it was revoked; null where it counts.')),
  revoked_by: orNull(word('The principal that revoked it.')),
  previous_until: orNull(time('Until when the secret before the last rotation counts too.')),
  last_used_at: orNull(time('When it was last used; recorded about once a minute.')),
  last_used_from: orNull(word('The address that it was last used from.')),
});

export const FreshKeyBody = Type.Object({
  key: KeyBody,
  text: word('The text that callers send. It is shown this once.'),
});

export const IdentityBody = entity('Identity', 'The caller, as the server sees it.', {
  kind: oneOf(principalKinds, 'How the caller proved who it is; `local` where no credential is needed.'),
  id: word('The public id of the credential.'),
  name: word('Its name.'),
  roles: rolesBody,
  scopes: ScopesBody,
  worker_ids: workerIds,
  sees_payloads: flag('It sees payloads, results and errors.'),
  expires_at: expiresAt,
  permissions: list(word('A permission.'), 'All that its roles permit.'),
});

export const AuditEventBody = entity('AuditEvent', 'A privileged act, or a refused attempt.', {
  audit_id: whole('Its place in the audit.'),
  ts: time('When it happened.'),
  principal: Type.Object(
    {
      kind: oneOf(principalKinds, 'How the caller proved who it is.'),
      id: word('The public id of the credential.'),
      name: word('Its name.'),
    },
    { description: 'Who did it, as the credential proved.' },
  ),
  requested_by: orNull(word('The name that the caller gave itself, which nothing proves.')),
  peer: word("The caller's address."),
  method: orNull(word('The RPC or the route; null where no call was made.')),
  action: oneOf(Object.keys(auditActions) as AuditAction[], 'The act.'),
  target: orNull(word('What it was about.')),
  outcome: oneOf(auditOutcomes, 'Whether it was carried out.'),
  detail: orNull(word('More about it.')),
  trace_id: orNull(word('The trace of the call.')),
  left_out: whole(
    'How many refusals of the same caller, for the same reason, in the same second it stands for besides.',
  ),
});

const timeOf = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

const scopesBody = ({ addon_ids, streams, job_types, repositories }: Scopes) => ({
  addon_ids: [...addon_ids],
  streams: [...streams],
  job_types: [...job_types],
  repositories: [...repositories],
});

export const keyBody = (key: Key): Static<typeof KeyBody> => ({
  key_id: key.keyId,
  name: key.name,
  roles: [...key.roles],
  scopes: scopesBody(key.scopes),
  worker_ids: [...key.workerIds],
  sees_payloads: key.seesPayloads,
  limits: {
    submit_per_s: key.limits.submitPerS,
    read_per_s: key.limits.readPerS,
    burst_s: key.limits.burstS,
    max_streams: key.limits.maxStreams,
  },
  note: key.note,
  created_at: new Date(key.createdAtMs).toISOString(),
  created_by: key.createdBy,
  expires_at: timeOf(key.expiresAtMs),
  revoked_at: timeOf(key.revokedAtMs),
  revoked_by: key.revokedBy,
  previous_until: timeOf(key.previousUntilMs),
  last_used_at: timeOf(key.lastUsedAtMs),
  last_used_from: key.lastUsedFrom,
});

export const identityBody = (principal: Principal): Static<typeof IdentityBody> => ({
  kind: principal.kind,
  id: principal.id,
  name: principal.name,
  roles: [...principal.roles],
  scopes: scopesBody(principal.scopes),
  worker_ids: [...principal.workerIds],
  sees_payloads: principal.seesPayloads,
  expires_at: timeOf(principal.expiresAtMs),
  permissions: permissions.filter((permission) => reachOf(principal.roles, permission) !== undefined),
});

export const auditEventBody = (event: AuditEvent): Static<typeof AuditEventBody> => ({
  audit_id: Number(event.auditId),
  ts: new Date(event.atMs).toISOString(),
  principal: { kind: event.principal.kind, id: event.principal.id, name: event.principal.name },
  requested_by: event.requestedBy,
  peer: event.peer,
  method: event.method,
  action: event.action,
  target: event.target,
  outcome: event.outcome,
  detail: event.detail,
  trace_id: event.traceId,
  left_out: event.leftOut,
});

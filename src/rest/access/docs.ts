import Type from 'typebox';
import { CreateKey, ListAudit, RevokeKey, RotateKey } from '../../domain/requests/access.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { list, nextCursor } from '../openapi/schema-types.ts';
import { AuditEventBody, FreshKeyBody, IdentityBody, KeyBody } from './schemas.ts';

const scopes = { addon_ids: ['shop'], streams: ['*'], job_types: ['*'], repositories: [] };

const key = {
  key_id: '7kQ2mZr41xPa',
  name: 'render-worker',
  roles: ['worker' as const],
  scopes,
  worker_ids: ['render-worker*'],
  sees_payloads: false,
  limits: { submit_per_s: 500, read_per_s: null, burst_s: null, max_streams: 20 },
  note: null,
  created_at: '2026-11-19T08:00:00.000Z',
  created_by: 'ops',
  expires_at: '2027-02-17T08:00:00.000Z',
  revoked_at: null,
  revoked_by: null,
  previous_until: null,
  last_used_at: '2026-11-19T08:14:00.000Z',
  last_used_from: '192.0.2.7',
};

/** Documentation of keys and of the audit. */
export const accessAbout = operations('Access', {
  whoAmI: {
    summary: 'Read who the caller is, and what it may do',
    answers: {
      200: answer('The caller.', IdentityBody, {
        kind: 'key',
        id: key.key_id,
        name: key.name,
        roles: key.roles,
        scopes,
        worker_ids: key.worker_ids,
        sees_payloads: false,
        expires_at: key.expires_at,
        permissions: ['jobs.read', 'leases.work'],
      }),
    },
    errors: [],
  },
  listKeys: {
    summary: 'List the keys, without their secrets',
    details: 'Also revoked and expired ones; the oldest first.',
    answers: {
      200: answer('The keys.', Type.Object({ keys: list(KeyBody, 'The keys.') }), { keys: [key] }),
    },
    errors: [],
  },
  getKey: {
    summary: 'Read one key, without its secret',
    answers: { 200: answer('The key.', Type.Object({ key: KeyBody }), { key }) },
    errors: ['not_found'],
  },
  createKey: {
    summary: 'Create a key',
    details: 'Its text is in the answer, and nowhere else: the server stores only a hash.',
    body: requestBody(CreateKey, { name: 'render-worker', roles: ['worker'], scopes }),
    answers: {
      201: answer('The key and its text.', FreshKeyBody, {
        key,
        text: 'lhk_7kQ2mZr41xPa_…',
      }),
    },
    errors: ['duplicate_request', 'quota_exceeded'],
  },
  rotateKey: {
    summary: 'Give a key a new secret',
    details:
      'The old one counts until the overlap is over. Leases that were taken with the key stay with it.',
    body: requestBody(RotateKey, { overlap_s: 86_400 }),
    answers: {
      200: answer('The key and its new text.', FreshKeyBody, { key, text: 'lhk_7kQ2mZr41xPa_…' }),
    },
    errors: ['not_found', 'illegal_transition'],
  },
  revokeKey: {
    summary: 'Revoke a key',
    details:
      'Within 5 seconds every server refuses it and ends its open streams. Its leases run until they expire.',
    body: requestBody(RevokeKey, {}),
    answers: { 200: answer('The key.', Type.Object({ key: KeyBody }), { key }) },
    errors: ['not_found'],
  },
  listAuditEvents: {
    summary: 'List privileged acts and refused calls; the newest first',
    details: "The credential's scopes must reach everything.",
    query: ListAudit,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ events: list(AuditEventBody, 'The events.'), next_cursor: nextCursor }),
        {
          events: [
            {
              audit_id: 12,
              ts: '2026-11-19T08:00:00.000Z',
              principal: { kind: 'key', id: '0aB1cD2eF3gH', name: 'ops' },
              requested_by: null,
              peer: '192.0.2.9',
              method: 'POST /api/access/keys',
              action: 'keys.create',
              target: key.key_id,
              outcome: 'done',
              detail: 'name=render-worker roles=worker expires_at=2027-02-17T08:00:00.000Z',
              trace_id: null,
              left_out: 0,
            },
          ],
          next_cursor: null,
        },
      ),
    },
    errors: [],
  },
});

import Type from 'typebox';
import { SetQuota } from '../../domain/requests/quotas.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { list, orNull } from '../openapi/schema-types.ts';
import { QuotaBody } from './schemas.ts';

const quota = {
  addon_id: 'shop',
  max_units: 40,
  max_queued: 10_000,
  max_payload_bytes: null,
  used_units: 12,
  queued_jobs: 230,
  updated_at: '2026-11-19T08:00:00.000Z',
  updated_by: 'ops',
};

/** Documentation of quotas. */
export const quotasAbout = operations('Access', {
  listQuotas: {
    summary: 'List the quotas of tenants, with what is used of them',
    answers: {
      200: answer('The quotas.', Type.Object({ quotas: list(QuotaBody, 'The quotas.') }), {
        quotas: [quota],
      }),
    },
    errors: [],
  },
  setQuota: {
    summary: 'Replace the limits of a tenant',
    details:
      'An absent limit is no limit; without any limit the quota is removed. Jobs beyond `max_units` wait. ' +
      'Submissions beyond the other limits are refused.',
    body: requestBody(SetQuota, { addon_id: 'shop', max_units: 40, max_queued: 10_000 }),
    answers: {
      200: answer('The quota; null if it was removed.', Type.Object({ quota: orNull(QuotaBody) }), { quota }),
    },
    errors: ['quota_exceeded'],
  },
});

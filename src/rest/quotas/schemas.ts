import type { Static } from 'typebox';
import type { QuotaWithUse } from '../../engine/quotas/quota-service.ts';
import { entity, orNull, time, whole, word } from '../openapi/schema-types.ts';

export const QuotaBody = entity('Quota', 'What a tenant may use at most, and what it uses.', {
  addon_id: word('The tenant: the application that submits the jobs.'),
  max_units: orNull(whole('Units of its active leases and claimed jobs; null for no limit.')),
  max_queued: orNull(whole('Jobs that wait; null for no limit.')),
  max_payload_bytes: orNull(whole('Bytes of the payload of one job; null for no limit.')),
  used_units: whole('Units of its active leases and claimed jobs.'),
  queued_jobs: whole('Its jobs that wait.'),
  updated_at: time('When the quota was set.'),
  updated_by: word('The principal that set it.'),
});

export const quotaBody = ({ quota, use }: QuotaWithUse): Static<typeof QuotaBody> => ({
  addon_id: quota.addonId,
  max_units: quota.maxUnits,
  max_queued: quota.maxQueued,
  max_payload_bytes: quota.maxPayloadBytes,
  used_units: use.units,
  queued_jobs: use.queued,
  updated_at: new Date(quota.updatedAtMs).toISOString(),
  updated_by: quota.updatedBy,
});

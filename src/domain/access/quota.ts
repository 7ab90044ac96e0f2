import { DomainError, printable } from '../errors.ts';

/** What a tenant may use at most. An absent limit is null. */
export interface QuotaLimits {
  /** Units of its active leases, and of its claimed jobs. */
  maxUnits: number | null;
  /** Jobs that wait. */
  maxQueued: number | null;
  /** Bytes of the payload of one job. */
  maxPayloadBytes: number | null;
}

/** The quota of a tenant, by its `addon_id`. */
export interface Quota extends QuotaLimits {
  addonId: string;
  updatedAtMs: number;
  updatedBy: string;
}

/** What a tenant uses. */
export interface TenantUse {
  units: number;
  queued: number;
}

export const hasLimit = ({ maxUnits, maxQueued, maxPayloadBytes }: QuotaLimits): boolean =>
  maxUnits !== null || maxQueued !== null || maxPayloadBytes !== null;

const subjectOf = (addonId: string): string => `addon_id:${addonId}`;

export const tooManyQueued = (addonId: string, limit: number, used: number): DomainError =>
  new DomainError('quota_exceeded', `max_queued: ${used} of ${limit} jobs of ${printable(addonId)} wait`, {
    field: 'addon_id',
    quota: { name: 'max_queued', subject: subjectOf(addonId), limit, used },
  });

export const costsOverQuota = (addonId: string, limit: number, used: number): DomainError =>
  new DomainError(
    'quota_exceeded',
    `max_units: the job costs ${used} units, and ${limit} is the most of ${printable(addonId)}`,
    { field: 'cost_units', quota: { name: 'max_units', subject: subjectOf(addonId), limit, used } },
  );

export const payloadOverQuota = (addonId: string, limit: number, used: number): DomainError =>
  new DomainError(
    'quota_exceeded',
    `max_payload_bytes: the payload has ${used} bytes, and ${limit} is the most of ${printable(addonId)}`,
    { field: 'payload', quota: { name: 'max_payload_bytes', subject: subjectOf(addonId), limit, used } },
  );

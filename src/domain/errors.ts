/**
 * All error codes of requests, the same in every API. `rpc/errors.ts` and `rest/http/errors.ts` each map
 * these codes to their protocol; no other file decides a status.
 */
export const errorCodes = [
  'invalid_request',
  'job_not_found',
  'lease_not_found',
  'worker_mismatch',
  'token_mismatch',
  'job_mismatch',
  'message_mismatch',
  'job_not_claimed',
  'illegal_transition',
  'lease_not_active',
  'duplicate_request',
  'owner_not_found',
  'owner_not_alive',
  'contention_not_found',
  'payload_too_large',
  'overloaded',
  'unavailable',
  'deadline_exceeded',
  'canceled',
  'not_found',
  'method_not_allowed',
  'unsupported_media_type',
  'host_not_allowed',
  'origin_not_allowed',
  'unauthenticated',
  'permission_denied',
  'rate_limited',
  'quota_exceeded',
] as const;

export type ErrorCode = (typeof errorCodes)[number];

export interface ErrorFacts {
  /** The field of the request that is at fault, as a path: `jobs[3].payload.model`. */
  field?: string;
  /** The first job of a duplicate submission. */
  jobId?: string;
  /** The earliest time at which the same call may succeed. */
  retryAfterMs?: number;
  /** The quota that the call would exceed. */
  quota?: QuotaUse;
  cause?: unknown;
}

/** A quota with what is used of it. */
export interface QuotaUse {
  name: string;
  /** Whose quota it is: `addon_id:shop`. */
  subject: string;
  limit: number;
  used: number;
}

/** The one error that the domain and the engine throw on purpose. Its text is for the caller. */
export class DomainError extends Error {
  readonly code: ErrorCode;
  readonly detail: string;
  readonly field: string | undefined;
  readonly jobId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly quota: QuotaUse | undefined;

  constructor(code: ErrorCode, detail: string, facts: ErrorFacts = {}) {
    super(`${code}: ${detail}`, { cause: facts.cause });
    this.name = 'DomainError';
    this.code = code;
    this.detail = detail;
    this.field = facts.field;
    this.jobId = facts.jobId;
    this.retryAfterMs = facts.retryAfterMs;
    this.quota = facts.quota;
  }
}

export const invalid = (field: string, problem: string): DomainError =>
  new DomainError('invalid_request', `${field}: ${problem}`, { field });

export const jobNotFound = (jobId: string): DomainError =>
  new DomainError('job_not_found', `there is no job ${printable(jobId)}`);

/** A value from the caller, shortened and escaped so that an error text may repeat it. */
export function printable(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'an object';
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  // The cut may split a surrogate pair, and some protocols cannot carry half of one.
  return text.length > 80 ? `${text.slice(0, 80).toWellFormed()}…` : text;
}

export const leaseNotFound = (leaseId: string): DomainError =>
  new DomainError('lease_not_found', `there is no lease ${printable(leaseId)}`);

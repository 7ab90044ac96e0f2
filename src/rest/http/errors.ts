import type { DomainError, ErrorCode } from '../../domain/errors.ts';
import { toDomainError } from '../../engine/context/to-domain-error.ts';
import type { RestResponse } from '../../lib/http/response.ts';
import { inOneLine, type Log } from '../../lib/log.ts';
import { MethodNotAllowed } from './method-not-allowed.ts';

/** The one map from the domain's error codes to HTTP. */
export const statuses: Record<ErrorBody['code'], number> = {
  invalid_request: 400,
  unauthenticated: 401,
  worker_mismatch: 403,
  token_mismatch: 403,
  host_not_allowed: 403,
  origin_not_allowed: 403,
  permission_denied: 403,
  job_not_found: 404,
  lease_not_found: 404,
  owner_not_found: 404,
  contention_not_found: 404,
  not_found: 404,
  method_not_allowed: 405,
  job_mismatch: 409,
  message_mismatch: 409,
  job_not_claimed: 409,
  illegal_transition: 409,
  lease_not_active: 409,
  owner_not_alive: 409,
  duplicate_request: 409,
  payload_too_large: 413,
  unsupported_media_type: 415,
  overloaded: 429,
  rate_limited: 429,
  quota_exceeded: 429,
  canceled: 499,
  internal: 500,
  unavailable: 503,
  deadline_exceeded: 503,
};

/**
 * Any error as its caller may see it. An unexpected error is logged and returned as `internal` without
 * details.
 */
export function errorResponse(
  error: unknown,
  log: Log,
  route: string,
  signal?: AbortSignal,
): RestResponse & { body: ErrorBody } {
  const known = toDomainError(error, signal);
  if (!known) {
    log.error('a request failed', { route, error });
    return { status: 500, body: { detail: 'something went wrong on the server', code: 'internal' } };
  }
  if (known.code === 'unavailable')
    log.warn('a request could not be served', { route, reason: inOneLine(known) });
  return { status: statuses[known.code], body: errorBody(known), headers: headersOf(known) };
}

/** The fields of every error. */
export interface ErrorBody {
  detail: string;
  code: ErrorCode | 'internal';
  field?: string;
  job_id?: string;
}

export const errorBody = ({ detail, code, field, jobId }: DomainError): ErrorBody => ({
  detail,
  code,
  ...(field === undefined ? {} : { field }),
  ...(jobId === undefined ? {} : { job_id: jobId }),
});

function headersOf(error: DomainError): Record<string, string> {
  if (error instanceof MethodNotAllowed) return { allow: error.allowed };
  if (error.code === 'unauthenticated') return { 'www-authenticate': 'Bearer error="invalid_token"' };
  if (error.code === 'unsupported_media_type') return { 'accept-encoding': 'gzip' };
  if (error.retryAfterMs !== undefined)
    return { 'retry-after': String(Math.max(1, Math.ceil(error.retryAfterMs / 1_000))) };
  return error.code === 'overloaded' || error.code === 'unavailable' || error.code === 'rate_limited'
    ? { 'retry-after': '1' }
    : {};
}

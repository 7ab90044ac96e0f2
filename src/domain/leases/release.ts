import { DomainError } from '../errors.ts';
import type { Json, JsonObject } from '../jobs/job.ts';
import { limits } from '../limits.ts';
import type { LeaseError, ReleaseLease } from '../requests/scheduler.ts';
import type { NamedMessage, Release } from './lease.ts';

export interface ReleaseRules {
  /**
   * Whether the worker decides that a failure may be retried, as its contract allows. In the queue contract a
   * release is final, whatever the error contains.
   */
  mayRetry: boolean;
  /** The default where the worker does not send `retryable`. */
  retryableByDefault?: boolean;
  /** The message that the worker believes is the attempt's; null if it names none. */
  message?: NamedMessage | null;
}

/** Builds a release from a validated command. */
export function releaseOf(
  leaseId: string,
  command: ReleaseLease,
  { mayRetry, retryableByDefault = false, message = null }: ReleaseRules,
): Release {
  const error = command.error ?? null;
  const detail = typeof error === 'string' ? null : error;
  const release: Release = {
    leaseId,
    workerId: command.worker_id,
    holder: null,
    token: command.lease_token ?? null,
    jobId: command.job_id ?? null,
    status: command.status,
    resultData: (command.result_data ?? null) as Json,
    error: typeof error === 'string' ? error : errorTextOf(detail),
    errorDetail: detail as JsonObject | null,
    retryable: mayRetry && (detail?.retryable ?? retryableByDefault),
    metrics: (command.metrics ?? null) as JsonObject | null,
    message,
    bytes: 0,
  };
  return { ...release, bytes: sizeOf(release) };
}

/** A success without an error: the only thing left to decide is whether the worker still holds the lease. */
export const isCompletion = ({ status, error, errorDetail }: Release): boolean =>
  status === 'SUCCEEDED' && error === null && errorDetail === null;

/** The text for places that show only text: the error's message, or else its code. */
const errorTextOf = (detail: LeaseError | null): string | null => detail?.message || detail?.code || null;

function sizeOf({ resultData, error, errorDetail, metrics }: Release): number {
  const parts = [resultData, error, errorDetail, metrics];
  const bytes = parts.map((part) => (part === null ? 0 : Buffer.byteLength(JSON.stringify(part))));
  const size = bytes.reduce((sum, each) => sum + each, 0);
  if (size <= limits.jobBytes) return size;
  const field = ['result_data', 'error', 'error', 'metrics'][bytes.indexOf(Math.max(...bytes))];
  const words = `${field}: what a job leaves may take at most ${limits.jobBytes} bytes`;
  throw new DomainError('payload_too_large', words, field === undefined ? {} : { field });
}

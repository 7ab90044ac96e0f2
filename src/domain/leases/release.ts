import { DomainError } from '../errors.ts';
import type { Json, JsonObject } from '../jobs/job.ts';
import { limits } from '../limits.ts';
import type { LeaseError, ReleaseLease } from '../requests/scheduler.ts';
import type { NamedMessage, Release } from './lease.ts';

export interface ReleaseRules {
  /**
   * Whether a failure may be retried is the worker's word where its contract gives it one; in the queue contract a release is
   * final, whatever the error says of itself.
   */
  mayRetry: boolean;
  /** What a worker means that does not say `retryable`. */
  retryableByDefault?: boolean;
  /** The message that the worker takes for the attempt's. */
  message?: NamedMessage | undefined;
}

/** What a worker hands in, from a checked command. */
export function releaseOf(
  leaseId: string,
  command: ReleaseLease,
  { mayRetry, retryableByDefault = false, message }: ReleaseRules,
): Release {
  const error = command.error ?? null;
  const detail = typeof error === 'string' ? null : error;
  const release: Release = {
    leaseId,
    workerId: command.worker_id,
    token: command.lease_token ?? null,
    jobId: command.job_id ?? null,
    status: command.status,
    resultData: (command.result_data ?? null) as Json,
    error: typeof error === 'string' ? error : errorTextOf(detail),
    errorDetail: detail as JsonObject | null,
    retryable: mayRetry && (detail?.retryable ?? retryableByDefault),
    metrics: (command.metrics ?? null) as JsonObject | null,
    ...(message === undefined ? {} : { message }),
    bytes: 0,
  };
  return { ...release, bytes: sizeOf(release) };
}

/** A job that went well, and no more to be said of it: there is nothing to decide but whether it is still theirs to end. */
export const isCompletion = ({ status, error, errorDetail }: Release): boolean =>
  status === 'SUCCEEDED' && error === null && errorDetail === null;

/** An error has to be readable where only its text is shown: its message, or else its name. */
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

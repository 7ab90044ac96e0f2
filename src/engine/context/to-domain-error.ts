import { DomainError } from '../../domain/errors.ts';
import { isCancelled, isRetryable, isUnavailable, isUnconfirmed } from '../../store/connection/sql.ts';
import { SchemaTooNewError } from '../../store/schema-too-new.ts';

/**
 * Converts any error to one that a caller may see. Domain errors are meant for callers. For database errors
 * they learn only that the database cannot serve now. Undefined means a bug, which is logged and not sent.
 */
export function toDomainError(error: unknown, signal?: AbortSignal): DomainError | undefined {
  if (error instanceof DomainError) return error;
  const reason: unknown = signal?.aborted ? signal.reason : undefined;
  if (reason instanceof DomainError) return reason;
  if (signal?.aborted) return new DomainError('canceled', 'the caller has gone', { cause: error });
  if (isCancelled(error)) {
    return new DomainError('deadline_exceeded', 'the database took too long', { cause: error });
  }
  if (isRetryable(error)) {
    return new DomainError('unavailable', 'too many callers want the same jobs; try again', { cause: error });
  }
  if (error instanceof SchemaTooNewError) {
    return new DomainError('unavailable', error.message, { cause: error });
  }
  if (isUnconfirmed(error)) {
    const words =
      'the synchronous standby does not answer; whether the change outlives a failover is not known';
    return new DomainError('unavailable', words, { cause: error });
  }
  if (isUnavailable(error)) {
    const words = 'the database cannot be reached; whether a write took effect is not known';
    return new DomainError('unavailable', words, { cause: error });
  }
  return undefined;
}

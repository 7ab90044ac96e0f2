import { DomainError } from '../../domain/errors.ts';
import { isCancelled, isRetryable, isUnavailable, isUnconfirmed } from '../../store/connection/sql.ts';
import { SchemaTooNewError } from '../../store/schema-too-new.ts';

/**
 * What a caller may be told of any error. Domain errors are meant for them; of the database they learn only that it
 * cannot serve now. Undefined is a mistake of ours, which belongs into the log and into no answer.
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

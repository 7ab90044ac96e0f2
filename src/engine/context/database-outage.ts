/**
 * How gRPC streams continue while the database is unavailable. If they were ended, all clients would
 * reconnect at once, again and again.
 */
import { DomainError } from '../../domain/errors.ts';
import { isCancelled, isRetryable, isUnavailable } from '../../store/connection/sql.ts';

/** Maximum pause; the minimum is half of it. */
const pauseMs = 1_000;

/**
 * Whether a call failed because the database is unavailable, and may succeed later. A shutdown is reported by
 * a `DomainError`.
 */
export const isOutage = (error: unknown): boolean =>
  !(error instanceof DomainError) && (isUnavailable(error) || isRetryable(error) || isCancelled(error));

/** How long to wait before the database is queried again. */
export const outagePauseMs = (): number => (pauseMs * (1 + Math.random())) / 2;

/** How streams go on while the database is away: ended for that, all of them would come back at once, and again and again. */
import { DomainError } from '../../domain/errors.ts';
import { isCancelled, isRetryable, isUnavailable } from '../../store/connection/sql.ts';

/** A pause is that long at the most, and half of it at the least. */
const pauseMs = 1_000;

/** Whether work failed for want of a database, and may succeed later. A server that shuts down says so by a `DomainError`. */
export const isOutage = (error: unknown): boolean =>
  !(error instanceof DomainError) && (isUnavailable(error) || isRetryable(error) || isCancelled(error));

/** How long to leave the database alone before it is asked again. */
export const outagePauseMs = (): number => (pauseMs * (1 + Math.random())) / 2;

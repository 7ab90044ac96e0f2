/** How streams go on where the engine refuses what it has no room for: ended for that, they would come back and bring more. */
import { DomainError } from '../../domain/errors.ts';

/** A pause is that long at the most, and half of it at the least. */
const pauseMs = 100;

export const isOverload = (error: unknown): boolean =>
  error instanceof DomainError && error.code === 'overloaded';

/** How long to leave an overloaded engine alone. */
export const overloadPauseMs = (): number => (pauseMs * (1 + Math.random())) / 2;

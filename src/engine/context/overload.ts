/**
 * How gRPC streams continue while the engine is overloaded. If they were ended, clients would reconnect and
 * add load.
 */
import { DomainError } from '../../domain/errors.ts';

/** Maximum pause; the minimum is half of it. */
const pauseMs = 100;

export const isOverload = (error: unknown): boolean =>
  error instanceof DomainError && error.code === 'overloaded';

/** How long to wait before an overloaded engine is called again. */
export const overloadPauseMs = (): number => (pauseMs * (1 + Math.random())) / 2;

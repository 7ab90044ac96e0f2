import type { Holder } from '../access/holder.ts';
import { DomainError, printable } from '../errors.ts';
import type { OwnerProfile } from './file-lease.ts';

/** Liveness of an owner, decided from its locked row and the database's time. */

/** How long an owner lives after a heartbeat. */
export const ownerTtlMs = 60_000;
/** How long a stopped owner may be without activity before it loses its files. */
export const idleMs = 30_000;

/**
 * The states of an owner; the index is the number in the database. NEW is an owner that has never been alive.
 */
export const ownerStates = ['NEW', 'ALIVE', 'ENDED', 'DEAD'] as const;
export type OwnerState = (typeof ownerStates)[number];

export const ownerStateNumber = (state: OwnerState): number => ownerStates.indexOf(state);

export interface Owner {
  ownerId: string;
  /** The credential that began its present life. */
  holder: Holder;
  profile: OwnerProfile;
  state: OwnerState;
  /** When its present life began. */
  bornAtMs: number;
  lastHeartbeatAtMs: number;
  lastActivityAtMs: number;
  expiresAtMs: number;
  stoppedAtMs: number | null;
  /** When it loses its files unless it is active before; null where it has not stopped. */
  idleAtMs: number | null;
  /** When its life ended. */
  endedAtMs: number | null;
  /** It lost a file in this life and may not have been notified. */
  hasLosses: boolean;
}

/**
 * The liveness of an owner: alive; alive without any files (idle); without a heartbeat for its TTL (dead);
 * no longer or not yet alive (ended).
 */
export type OwnerLiveness = 'alive' | 'idle' | 'dead' | 'ended';

export function livenessOf(
  owner: Pick<Owner, 'state' | 'expiresAtMs' | 'idleAtMs'>,
  nowMs: number,
): OwnerLiveness {
  if (owner.state !== 'ALIVE') return 'ended';
  if (owner.expiresAtMs <= nowMs) return 'dead';
  return owner.idleAtMs !== null && owner.idleAtMs <= nowMs ? 'idle' : 'alive';
}

export const ownerNotFound = (ownerId: string): DomainError =>
  new DomainError('owner_not_found', `there is no owner ${printable(ownerId)}`);

/** The name is in use: its present life began with another credential. */
export const heldByAnother = (field: string): DomainError =>
  new DomainError('permission_denied', `${field}: another credential uses this name`, { field });

/** Why an owner that is not alive cannot be renewed. */
export function notAlive({ ownerId, state, expiresAtMs, endedAtMs }: Owner): DomainError {
  const name = `owner ${printable(ownerId)}`;
  const at = (ms: number) => new Date(ms).toISOString();
  if (state === 'NEW') return ownerNotFound(ownerId);
  const words =
    state === 'ENDED' && endedAtMs !== null
      ? `${name} ended at ${at(endedAtMs)}`
      : `${name} died at ${at(expiresAtMs)}: it was not heard for too long`;
  return new DomainError('owner_not_alive', `${words}; it holds nothing, and has to acquire its files anew`);
}

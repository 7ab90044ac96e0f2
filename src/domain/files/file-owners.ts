import { DomainError, printable } from '../errors.ts';
import type { OwnerProfile } from './file-lease.ts';

/** Whether an owner lives, decided from its locked row and the database's time. */

/** How long an owner lives after a sign of life. */
export const ownerTtlMs = 60_000;
/** How long an owner that has stopped may be without activity before it gives up its files. */
export const idleMs = 30_000;

/** The states of an owner; the index is the number in the database. NEW is one that has not begun to live. */
export const ownerStates = ['NEW', 'ALIVE', 'ENDED', 'DEAD'] as const;
export type OwnerState = (typeof ownerStates)[number];

export const ownerStateNumber = (state: OwnerState): number => ownerStates.indexOf(state);

export interface Owner {
  ownerId: string;
  profile: OwnerProfile;
  state: OwnerState;
  /** When its present life began. */
  bornAtMs: number;
  lastHeartbeatAtMs: number;
  lastActivityAtMs: number;
  expiresAtMs: number;
  stoppedAtMs: number | null;
  /** When it gives up its files unless it is active before; null where it has not stopped. */
  idleAtMs: number | null;
  /** When its life was over. */
  endedAtMs: number | null;
  /** Something was taken from it in this life that it may not know of. */
  hasLosses: boolean;
}

/** What has become of an owner: it lives, it lives and holds nothing any more, it fell silent, or it was over before. */
export type OwnerLiveness = 'alive' | 'idle' | 'dead' | 'over';

export function livenessOf(
  owner: Pick<Owner, 'state' | 'expiresAtMs' | 'idleAtMs'>,
  nowMs: number,
): OwnerLiveness {
  if (owner.state !== 'ALIVE') return 'over';
  if (owner.expiresAtMs <= nowMs) return 'dead';
  return owner.idleAtMs !== null && owner.idleAtMs <= nowMs ? 'idle' : 'alive';
}

export const ownerNotFound = (ownerId: string): DomainError =>
  new DomainError('owner_not_found', `there is no owner ${printable(ownerId)}`);

/** Why an owner that is not alive cannot be kept. */
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

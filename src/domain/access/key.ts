import type { KeyLimits } from './key-limits.ts';
import type { Role } from './roles.ts';
import type { Scopes } from './scopes.ts';

/** A key as it is stored, without its secret. */
export interface Key {
  keyId: string;
  /** The holder of the leases that it takes. Rotation keeps it. */
  lineage: string;
  name: string;
  roles: readonly Role[];
  scopes: Scopes;
  workerIds: readonly string[];
  seesPayloads: boolean;
  limits: KeyLimits;
  note: string | null;
  createdAtMs: number;
  createdBy: string;
  expiresAtMs: number | null;
  revokedAtMs: number | null;
  revokedBy: string | null;
  /** Until when the secret before the last rotation counts too. */
  previousUntilMs: number | null;
  lastUsedAtMs: number | null;
  lastUsedFrom: string | null;
}

/** What a new key is to be. */
export type KeyDraft = Pick<
  Key,
  'name' | 'roles' | 'scopes' | 'workerIds' | 'seesPayloads' | 'limits' | 'note' | 'expiresAtMs'
>;

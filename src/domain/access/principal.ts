import { type KeyLimits, serverLimits } from './key-limits.ts';
import type { Role } from './roles.ts';
import { everything, nothing, type Scopes } from './scopes.ts';

/** How a caller proved who it is. */
export const principalKinds = ['key', 'jwt', 'cert', 'session', 'local', 'system', 'anonymous'] as const;

export type PrincipalKind = (typeof principalKinds)[number];

/** The identity behind a call. */
export interface Principal {
  kind: PrincipalKind;
  /** The public id of the credential: a key's id, a token's subject, a certificate's identity. */
  id: string;
  name: string;
  roles: readonly Role[];
  scopes: Scopes;
  /** The worker ids and owner ids that it may act as: exact names, or prefixes that end in `*`. */
  workerIds: readonly string[];
  /** An observer sees payloads, results and errors only with this right. */
  seesPayloads: boolean;
  /** How much it may ask for, where that is not as the server's settings say. */
  limits: KeyLimits;
  /**
   * Identifies the holder of a lease beyond the life of one credential: the lineage of a key, which rotation
   * keeps. Null without authentication: then leases have no holder.
   */
  holder: string | null;
  expiresAtMs: number | null;
}

/** May do nothing: the default where a principal is missing. */
export const anonymous: Principal = {
  kind: 'anonymous',
  id: '',
  name: '',
  roles: [],
  scopes: nothing,
  workerIds: [],
  seesPayloads: false,
  limits: serverLimits,
  holder: null,
  expiresAtMs: 0,
};

/** Every caller of a server without authentication, and the server's own tasks. */
export const localPrincipal: Principal = {
  kind: 'local',
  id: 'local',
  name: 'local',
  roles: ['admin'],
  scopes: everything,
  workerIds: ['*'],
  seesPayloads: true,
  limits: serverLimits,
  holder: null,
  expiresAtMs: null,
};

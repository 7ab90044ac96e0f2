/**
 * Decides what a principal may do. The APIs ask for the role before they read a message; the facade's verbs
 * ask for the scope of the jobs, leases and files that they are about.
 *
 * Guarantees: outside of its scopes a credential learns nothing: an id is answered as if it did not exist,
 * and a name is refused. What asks for nothing in particular gets what its scopes reach.
 */

import type { Principal } from '../../domain/access/principal.ts';
import { type Access, type Permission, type Reach, reachOf } from '../../domain/access/roles.ts';
import {
  type JobScope,
  matches,
  reachesEverything,
  reachesJob,
  type ScopeKind,
} from '../../domain/access/scopes.ts';
import { DomainError } from '../../domain/errors.ts';

export const denied = (detail: string, field?: string): DomainError =>
  new DomainError('permission_denied', detail, field === undefined ? {} : { field });

/** Throws unless one of the principal's roles gives the access. */
export function requireAccess(principal: Principal, access: Access): Reach {
  if (access === 'open' || access === 'any' || principal.kind === 'local') return 'scope';
  const reach = reachOf(principal.roles, access);
  if (reach === undefined)
    throw denied(`needs the permission ${access}, which ${printableRoles(principal)} does not give`);
  if (reach === 'all' && !reachesEverything(principal.scopes))
    throw denied(`needs the permission ${access} with scopes that reach everything`);
  return reach;
}

const printableRoles = ({ roles }: Principal): string =>
  roles.length === 0 ? 'a credential without a role' : `the role ${roles.join(', ')}`;

/** Throws unless the name is in the scope. */
export function requireName(principal: Principal, kind: ScopeKind, name: string, field: string): void {
  if (!matches(principal.scopes[kind], name))
    throw denied(`${field}: is outside the scopes of the credential`, field);
}

/** Throws unless the principal may act as this worker or owner. */
export function requireWorker(principal: Principal, workerId: string, field: string): void {
  if (!matches(principal.workerIds, workerId))
    throw denied(`${field}: the credential may not act under this name`, field);
}

export const seesJob = (principal: Principal, job: JobScope): boolean => reachesJob(principal.scopes, job);

export type { Permission };

/**
 * Which role may do what, as data.
 */
export const roles = ['submitter', 'worker', 'observer', 'operator', 'admin'] as const;

export type Role = (typeof roles)[number];

/**
 * - `scope`: on what the credential's scopes reach.
 * - `own`: as `scope`, and only as a worker or an owner that the credential may act as.
 * - `all`: only if the credential's scopes reach everything of the kind.
 */
export type Reach = 'scope' | 'own' | 'all';

type Grants = Readonly<Partial<Record<Role, Reach>>>;

const grants = {
  'jobs.submit': { submitter: 'scope', operator: 'scope', admin: 'scope' },
  'jobs.read': {
    submitter: 'scope',
    worker: 'scope',
    observer: 'scope',
    operator: 'scope',
    admin: 'scope',
  },
  'jobs.cancel': { submitter: 'scope', operator: 'scope', admin: 'scope' },
  'jobs.retry': { operator: 'scope', admin: 'scope' },
  'leases.work': { worker: 'own', admin: 'scope' },
  'leases.read': { submitter: 'scope', worker: 'own', observer: 'scope', operator: 'scope', admin: 'scope' },
  'files.work': { worker: 'own', admin: 'scope' },
  'files.read': { worker: 'scope', observer: 'scope', operator: 'scope', admin: 'scope' },
  'files.instruct': { operator: 'scope', admin: 'scope' },
  'stats.read': {
    submitter: 'scope',
    worker: 'scope',
    observer: 'scope',
    operator: 'scope',
    admin: 'scope',
  },
  'capacity.read': { worker: 'scope', observer: 'scope', operator: 'scope', admin: 'scope' },
  'capacity.set': { operator: 'all', admin: 'all' },
  'system.read': { observer: 'all', operator: 'all', admin: 'all' },
  'keys.manage': { admin: 'scope' },
  'audit.read': { admin: 'all' },
  'quotas.read': { observer: 'all', operator: 'all', admin: 'all' },
  'quotas.set': { admin: 'all' },
} as const satisfies Record<string, Grants>;

export type Permission = keyof typeof grants;

export const permissions = Object.keys(grants) as Permission[];

/** The widest reach that any of the roles gives, or undefined if none gives the permission. */
export function reachOf(held: readonly Role[], permission: Permission): Reach | undefined {
  const granted: Grants = grants[permission];
  let widest: Reach | undefined;
  for (const role of held) {
    const reach = granted[role];
    if (reach === undefined) continue;
    if (reach === 'scope') return reach;
    widest ??= reach;
  }
  return widest;
}

/** `open` methods need no credential; `any` is for every valid credential. */
export type Access = Permission | 'open' | 'any';

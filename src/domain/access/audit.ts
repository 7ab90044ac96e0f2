import type { Principal } from './principal.ts';

/** The acts that the audit records, and what each is. */
export const auditActions = {
  'keys.create': 'a key was created',
  'keys.rotate': 'a key got a new secret',
  'keys.revoke': 'a key was revoked',
  'keys.new_address': 'a key was used from an address for the first time',
  'quotas.set': 'the quota of a tenant was set',
  'quotas.unset': 'the quota of a tenant was removed',
  'session.login': 'a browser exchanged a credential for a session',
  'session.logout': 'a browser ended its session',
  'capacity.set': 'the capacity was changed',
  'files.instruct': 'an operator decided a halted contention',
  'jobs.retry': 'a job was retried',
  'jobs.retry_dead_letters': 'dead letters were retried',
  'jobs.cancel': 'an operator or an administrator canceled a job',
  'server.start_insecure': 'a server started with LEASEHOLD_INSECURE',
  'access.unauthenticated': 'a call had no valid credential',
  'access.denied': 'a credential did not permit a call',
} as const;

export type AuditAction = keyof typeof auditActions;

export const auditOutcomes = ['done', 'denied'] as const;

/** A privileged act, or a refused attempt. It never contains a secret, a token or a payload. */
export interface AuditEvent {
  auditId: string;
  atMs: number;
  principal: Pick<Principal, 'kind' | 'id' | 'name'>;
  /** The name that the caller gave itself, which nothing proves. */
  requestedBy: string | null;
  peer: string;
  /** The RPC or the route; null where no call was made. */
  method: string | null;
  action: AuditAction;
  target: string | null;
  outcome: (typeof auditOutcomes)[number];
  detail: string | null;
  traceId: string | null;
  /** How many more refusals of the caller it stands for: of the same second and for the same reason. */
  leftOut: number;
}

/** An event that is to be recorded. */
export interface AuditDraft extends Omit<AuditEvent, 'auditId' | 'atMs'> {
  /** How long ago it happened, where it was collected first. */
  agoMs?: number;
}

import type { Principal } from './principal.ts';

/** A privileged act, or a refused attempt. It never contains a secret, a token or a payload. */
export interface AuditEvent {
  auditId: string;
  atMs: number;
  principal: Pick<Principal, 'kind' | 'id' | 'name'>;
  /** The name that the caller gave itself, which nothing proves. */
  requestedBy: string | null;
  peer: string;
  /** The verb and the noun: `keys.create`, `capacity.set`, `access.denied`. */
  action: string;
  target: string | null;
  outcome: 'done' | 'denied';
  detail: string | null;
  traceId: string | null;
}

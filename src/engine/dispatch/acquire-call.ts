/** A call of the acquirer to the dispatcher, and its results. */
import type { Holder } from '../../domain/access/holder.ts';
import type { Grant } from '../../domain/leases/lease.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { ScanWindow } from '../../store/sql/queue/heads.ts';

export interface AcquireCall {
  workerId: string;
  holder: Holder;
  requestId: string | null;
  /** Which jobs match. Calls of one request class have the same filter. */
  requestClass: string;
  filter: ClaimFilter;
  /** The TTL of the leases, the same for all calls of a request class; null uses the setting. */
  ttlS: number | null;
  /** Maximum number of jobs. */
  count: number;
  /** The grants are sent on a gRPC stream, and are requeued if the worker does not receive them. */
  isStreamed: boolean;
  /** The caller was woken, or repeats its call. It most likely finds work, so no probe is needed. */
  isExpected: boolean;
  /** Where a repeated call searches; only the slow path can. */
  window?: ScanWindow | undefined;
  /** The probe has found no work. The call only asks for what its request was granted before. */
  precheck?: Denied | undefined;
}

/**
 * The final result of a call. A denial carries the reason. The retry hint is computed only for callers that
 * receive one.
 */
export type Answer = Granted | Denied;
/** The result of one try. */
export type AcquireResult = Answer | Again;
/** At least one. */
export interface Granted {
  kind: 'granted';
  grants: Grant[];
}
export interface Denied {
  kind: 'denied';
  reason: string;
  shortage: Shortage;
}

/**
 * The call was neither granted nor denied, and the acquirer repeats it at once in this form. The transaction
 * was full, the fast path failed, a job had to be set aside first, or other transactions had locked or taken
 * the jobs.
 */
export interface Again {
  kind: 'again';
  call: AcquireCall;
}

/** What is missing: jobs, some of which may be `barred` because the worker holds a lease, or units. */
export type Shortage = { jobs: number; barred: boolean } | { units: number };

export const again = (call: AcquireCall): Again => ({ kind: 'again', call: { ...call, isExpected: true } });

export const denied = (reason: string, shortage: Shortage): Denied => ({ kind: 'denied', reason, shortage });

import type { Holder } from '../access/holder.ts';
import type { ErrorCode } from '../errors.ts';
import type { FinalStatus, Job, JobResult, Json, JsonObject } from '../jobs/job.ts';

/** The states of a lease as the queue contract names them; the index is the number in the database. */
export const leaseStates = ['ACTIVE', 'EXPIRED', 'RELEASED'] as const;
export type LeaseState = (typeof leaseStates)[number];

/**
 * A lease as all APIs show it, without its token. Times are milliseconds since 1970 by the database's clock.
 */
export interface Lease {
  leaseId: string;
  jobId: string;
  addonId: string;
  workerId: string;
  costUnits: number;
  ttlS: number;
  state: LeaseState;
  grantedAtMs: number;
  lastHeartbeatAtMs: number;
  expiresAtMs: number;
  /** A bigint in the database, given as its decimal digits. */
  fence: string;
  /** The number of the attempt, from 1. */
  attempt: number;
  endedAtMs: number | null;
  releaseStatus: FinalStatus | null;
  /** The error as text, and as an object where the worker sent one. Expired leases have one too. */
  error: string | null;
  errorDetail: JsonObject | null;
  /** The job was requeued when the lease ended. */
  requeued: boolean;
  /** The job became a dead letter when the lease ended. */
  deadLettered: boolean;
}

export interface LeaseWithJob {
  lease: Lease;
  job: Job;
}

/** A lease as only its worker sees it, with its job. */
export interface Grant {
  kind: 'granted';
  lease: Lease;
  token: string;
  job: Job;
  /** The id of the message that carried the job; null for jobs without a stream. */
  messageId: string | null;
  /**
   * The worker must send a heartbeat within this time after the grant, or after its replay; otherwise the
   * lease expires.
   */
  heartbeatWithinMs: number;
  /** How long the job was ready before the grant; null where that is not known, and for a replayed grant. */
  waitMs: number | null;
}

export interface Denial {
  kind: 'denied';
  /** The reason, as the contracts word it. */
  reason: string;
  retryAfterMs: number;
}

export type LeaseOutcome = Grant | Denial;

/** A worker's heartbeat for one lease. A null field was not sent. Token and job id are in lower case. */
export interface Heartbeat {
  leaseId: string;
  workerId: string;
  /** The caller's holder; the API layers leave it to the engine. */
  holder: Holder;
  token: string | null;
  jobId: string | null;
  progress: number | null;
  message: string | null;
}

/** The answer to a heartbeat. */
export type Verdict = Extended | Lost;

export interface Extended {
  kind: 'extended';
  expiresAtMs: number;
  ttlRemainingMs: number;
  cancelRequested: boolean;
}

export interface Lost {
  kind: 'lost';
  code: ErrorCode;
  detail: string;
  /** The request field at fault, where the code alone does not identify it. */
  field?: string;
}

/** What a worker sends when it releases its lease. */
export interface Release {
  leaseId: string;
  workerId: string;
  /** The caller's holder; the API layers leave it to the engine. */
  holder: Holder;
  token: string | null;
  jobId: string | null;
  status: FinalStatus;
  resultData: Json;
  /** The error as text, and as an object where the worker sent one. */
  error: string | null;
  errorDetail: JsonObject | null;
  /** The worker reports that another attempt may succeed. */
  retryable: boolean;
  metrics: JsonObject | null;
  /** The message that the worker believes is the attempt's; null if it names none. */
  message: NamedMessage | null;
  /** The size of result, error and metrics as JSON text. */
  bytes: number;
}

/** A message as a worker names it. A null field was not named. */
export interface NamedMessage {
  stream: string | null;
  messageId: string | null;
}

/** The lease and the job after a release. */
export interface Released {
  lease: Lease;
  job: Job;
  /** Null where the job was requeued. */
  result: JobResult | null;
}

/** Units of capacity: `available = usable - used`. */
export interface Capacity {
  total: number;
  busyRating: number;
  usable: number;
  /** Units that active leases use. */
  used: number;
  available: number;
  /** Units that claimed jobs would use. */
  reserved: number;
}

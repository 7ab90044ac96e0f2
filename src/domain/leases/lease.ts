import type { ErrorCode } from '../errors.ts';
import type { FinalStatus, Job, JobResult, Json, JsonObject } from '../jobs/job.ts';

/** The states of a lease in the queue contract's words; the index is the number in the database. */
export const leaseStates = ['ACTIVE', 'EXPIRED', 'RELEASED'] as const;
export type LeaseState = (typeof leaseStates)[number];

/** A lease as everybody sees it: without its token. Times are milliseconds since 1970 by the database's clock. */
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
  /** A bigint in the database, told as its decimal digits. */
  fence: string;
  /** Which attempt at the job it is, from 1. */
  attempt: number;
  endedAtMs: number | null;
  releaseStatus: FinalStatus | null;
  /** What went wrong, in words and as an object where one came; also of a lease that expired. */
  error: string | null;
  errorDetail: JsonObject | null;
  /** Its job went back into the queue when it ended. */
  requeued: boolean;
  /** Its job was given up by its stream when it ended. */
  deadLettered: boolean;
}

/** A lease as only its worker sees it, with the job it is for. */
export interface Grant {
  kind: 'granted';
  lease: Lease;
  token: string;
  job: Job;
  /** The name of the message that the job came with; null for jobs without a stream. */
  messageId: string | null;
  /** The worker must be heard within so long of the grant, or of its replay; otherwise the lease expires. */
  heartbeatWithinMs: number;
  /** How long the job could have been leased before; null where that is not known, and of a grant that is answered again. */
  waitMs?: number | null;
}

export interface Denial {
  kind: 'denied';
  /** Why, in the contracts' own sentences. */
  reason: string;
  retryAfterMs: number;
}

export type LeaseOutcome = Grant | Denial;

/** A worker's sign of life for one lease. */
export interface Heartbeat {
  leaseId: string;
  workerId: string;
  token?: string | undefined;
  jobId?: string | undefined;
  progress?: number | undefined;
  message?: string | undefined;
}

/** What a heartbeat came to. */
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
  /** The field of the request that is at fault, where the code alone does not say it. */
  field?: string;
}

/** What a worker hands in with its lease. */
export interface Release {
  leaseId: string;
  workerId: string;
  token: string | null;
  jobId: string | null;
  status: FinalStatus;
  resultData: Json;
  /** The error in words, and as an object where one came. */
  error: string | null;
  errorDetail: JsonObject | null;
  /** The worker says that another attempt may go better. */
  retryable: boolean;
  metrics: JsonObject | null;
  /** The message that the worker takes for the attempt's, where it names one. */
  message?: NamedMessage | undefined;
  /** The size of what is handed in, as JSON text. */
  bytes: number;
}

/** A message as a worker names it. What is null was not named. */
export interface NamedMessage {
  stream: string | null;
  messageId: string | null;
}

/** What became of lease and job. */
export interface Released {
  lease: Lease;
  job: Job;
  /** Null where the job went back into the queue. */
  result: JobResult | null;
}

/** Units of capacity: `available = usable - used`. */
export interface Capacity {
  total: number;
  busyRating: number;
  usable: number;
  /** What active leases take. */
  used: number;
  available: number;
  /** What claimed jobs would take. */
  reserved: number;
}

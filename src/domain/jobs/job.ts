import type { EventType, State } from './state-machine.ts';

/** Any JSON, passed on as it was received. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** The priorities in the order in which they are served; the index is the number in the database. */
export const priorities = ['URGENT', 'HIGH', 'NORMAL', 'LOW'] as const;
export type Priority = (typeof priorities)[number];

export const finalStatuses = ['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'] as const;
export type FinalStatus = (typeof finalStatuses)[number];

/** A job as all APIs show it. Times are milliseconds since 1970 by the database's clock. */
export interface Job {
  jobId: string;
  addonId: string;
  jobType: string;
  priority: Priority;
  costUnits: number;
  constraints: JsonObject;
  payload: JsonObject;
  state: State;
  createdAtMs: number;
  updatedAtMs: number;
  claimedBy: string | null;
  claimExpiresAtMs: number | null;
  leaseId: string | null;
  attempts: number;
  nextRetryAtMs: number | null;
  clientRequestId: string | null;
  stream: string | null;
  unique: boolean;
  tags: string[];
  maxRuntimeS: number | null;
  maxAttempts: number;
  retryBackoffS: number;
  runAtMs: number | null;
  cancelRequested: boolean;
  progress: number | null;
  note: string | null;
  /** Dead letter of its stream: it failed for good, or has no attempt left. */
  deadLettered: boolean;
}

export interface JobResult {
  jobId: string;
  status: FinalStatus;
  resultData: Json;
  error: string | null;
  errorDetail: JsonObject | null;
  startedAtMs: number | null;
  finishedAtMs: number;
  attempts: number;
  metrics: JsonObject | null;
}

export interface JobWithResult {
  job: Job;
  result: JobResult | null;
}

export interface JobEvent {
  /** Rises with time within a job. A bigint in the database, given as its decimal digits. */
  eventId: string;
  tsMs: number;
  type: EventType;
  jobId: string;
  leaseId: string | null;
  data: JsonObject;
}

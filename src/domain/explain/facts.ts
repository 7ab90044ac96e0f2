import type { Job, JobEvent, JobResult, JsonObject } from '../jobs/job.ts';
import type { Capacity, Lease } from '../leases/lease.ts';
import type { Demand } from '../workers/known-requests.ts';
import type { AttemptHeartbeats, HeartbeatStats } from './silences.ts';

/** The facts behind an explanation, and the causes that it may name. */
export const causeCodes = [
  // Waits of a queued job.
  'waiting_for_worker',
  'waiting_in_line',
  'waiting_for_units',
  'costs_more_than_total',
  'tenant_quota',
  'backoff',
  'run_at',
  'needs_capability',
  'needs_stream_worker',
  'unique',
  // Waits of a claimed job.
  'claimed',
  'claim_overdue',
  // Conditions of a leased job.
  'waiting_for_first_heartbeat',
  'running',
  'lease_overdue',
  'cancel_requested',
  // Ends of an attempt, and their causes.
  'released',
  'failed_retryably',
  'never_heard_of',
  'no_heartbeat_since',
  'over_max_runtime',
  'server_away',
  'stream_closed',
  'long_silence',
  // Ends of a job.
  'done',
  'failed',
  'canceled',
  'attempts_exhausted',
  'claims_exhausted',
  'dead_lettered',
] as const;
export type CauseCode = (typeof causeCodes)[number];

/** One cause. */
export interface Cause {
  code: CauseCode;
  /** The cause, in a sentence. */
  text: string;
  /** Since when it holds, or when it happened, where that is known. */
  sinceMs: number | null;
  /** When it ends at the latest, where that is known. */
  untilMs: number | null;
  /** The figures behind the sentence, under stable names. */
  facts: JsonObject;
}

export interface Attempt {
  lease: Lease;
  signs: AttemptHeartbeats;
  /** The condition of the attempt, or how and why it ended: the main cause first. */
  causes: Cause[];
}

/** A time in which no server was alive. */
export interface OutageSpan {
  beganAtMs: number;
  endedAtMs: number;
}

/**
 * How a heartbeat stream ended: by its worker, with its connection, with an error, or because the server
 * stops.
 */
export const streamEnds = ['ended', 'gone', 'failed', 'drained'] as const;
export type StreamEnd = (typeof streamEnds)[number];

export interface StreamClosing {
  atMs: number;
  how: StreamEnd;
}

/**
 * A lease that expires soon unless its worker renews it. Its names are null if the scopes of the caller do
 * not reach its job.
 */
export interface EndingLease {
  leaseId: string | null;
  workerId: string | null;
  costUnits: number;
  expiresAtMs: number;
}

/** A job ahead of another one. Its id is null if the scopes of the caller do not reach it. */
export interface JobAhead {
  jobId: string | null;
  costUnits: number;
}

/** The position of a queued job. Counts stop at `aheadMax`. */
export interface QueuePosition {
  /** It is set aside as unschedulable, because it costs more than the total. */
  isParked: boolean;
  requires: readonly string[];
  heavy: readonly string[];
  /** Jobs before it that suit exactly the same workers. */
  aheadInLane: number;
  /** Jobs before it of the same stream, or of no stream, whatever they require of a worker. */
  ahead: number;
  /** The first job that suits the same workers. */
  laneHead: JobAhead | null;
  /** The first job of the stream, or of no stream. */
  head: JobAhead | null;
}

/** The bound of the counts of jobs before a job. */
export const aheadMax = 10_000;

/** The quota of units of a tenant, and what it uses. */
export interface TenantShare {
  addonId: string;
  maxUnits: number;
  usedUnits: number;
}

export interface ExplainFacts {
  nowMs: number;
  job: Job;
  result: JobResult | null;
  /** The lease of the explained attempt, where the request names one. */
  lease: Lease | null;
  /** The oldest and the newest events, with a gap between them where there are too many. */
  events: { first: readonly JobEvent[]; last: readonly JobEvent[]; leftOut: number };
  /** Oldest first. */
  attempts: readonly Lease[];
  /** Heartbeat statistics of the attempts, by lease, up to the last heartbeat of each. */
  signs: ReadonlyMap<string, HeartbeatStats>;
  outages: readonly OutageSpan[];
  capacity: Capacity;
  place: QueuePosition | null;
  /** Of a queued job: the demand for it among known workers; null where that is not known. */
  demand: Demand | null;
  endingSoon: readonly EndingLease[];
  /** Of a queued job: the units that its tenant uses, if it has a quota of units. */
  tenant?: TenantShare | null;
  /** Of the present lease: the last stream that renewed it has closed, as far as this server knows. */
  streamClosed: StreamClosing | null;
}

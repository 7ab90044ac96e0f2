import type { Job, JobEvent, JobResult, JsonObject } from '../jobs/job.ts';
import type { Capacity, Lease } from '../leases/lease.ts';
import type { Demand } from '../workers/known-requests.ts';
import type { AttemptHeartbeats, HeartbeatStats } from './silences.ts';

/** What an explanation is made from, and the reasons that it may name. */
export const causeCodes = [
  // What a queued job waits for.
  'waiting_for_worker',
  'waiting_in_line',
  'waiting_for_units',
  'costs_more_than_total',
  'backoff',
  'run_at',
  'needs_capability',
  'needs_stream_worker',
  'unique',
  // What a claimed job waits for.
  'claimed',
  'claim_overdue',
  // How a leased job is.
  'waiting_for_first_heartbeat',
  'running',
  'lease_overdue',
  'cancel_requested',
  // How an attempt ended.
  'released',
  'failed_retryably',
  'never_heard_of',
  'no_heartbeat_since',
  'over_max_runtime',
  'server_away',
  'stream_closed',
  'long_silence',
  // How a job ended.
  'done',
  'failed',
  'canceled',
  'attempts_exhausted',
  'claims_exhausted',
  'dead_lettered',
] as const;
export type CauseCode = (typeof causeCodes)[number];

/** One reason. */
export interface Cause {
  code: CauseCode;
  /** In a sentence. */
  text: string;
  /** Since when it holds, or when it happened, where that is known. */
  sinceMs: number | null;
  /** When it will be over at the latest, where that is known. */
  untilMs: number | null;
  /** The figures behind the sentence, by names that stay. */
  facts: JsonObject;
}

export interface Attempt {
  lease: Lease;
  signs: AttemptHeartbeats;
  /** How it is, or how it ended and why: the main reason first. */
  causes: Cause[];
}

/** A time in which no server lived. */
export interface OutageSpan {
  beganAtMs: number;
  endedAtMs: number;
}

/** How a stream of heartbeats ended: by its worker, with its connection, with an error, or because the server stops. */
export const streamEnds = ['ended', 'gone', 'failed', 'drained'] as const;
export type StreamEnd = (typeof streamEnds)[number];

export interface StreamClosing {
  atMs: number;
  how: StreamEnd;
}

/** A lease that will end soon unless its worker keeps it. */
export interface EndingLease {
  leaseId: string;
  workerId: string;
  costUnits: number;
  expiresAtMs: number;
}

/** Where a queued job stands. Counts stop at `aheadMax`. */
export interface QueuePosition {
  /** The reaper has put it aside, because it costs more than all there is. */
  isParked: boolean;
  requires: readonly string[];
  heavy: readonly string[];
  /** Jobs before it that suit just the same workers. */
  aheadInLane: number;
  /** Jobs before it of the same stream, or of none, whatever they ask of a worker. */
  ahead: number;
  /** The first of those that suit the same workers. */
  laneHead: { jobId: string; costUnits: number } | null;
  /** The first of all. */
  head: { jobId: string; costUnits: number } | null;
}

/** Jobs in line are counted to here. */
export const aheadMax = 10_000;

export interface ExplainFacts {
  nowMs: number;
  job: Job;
  result: JobResult | null;
  /** The attempt that was asked about, where it was one. */
  lease: Lease | null;
  /** The oldest and the newest events, with a gap between them where there are too many. */
  events: { first: readonly JobEvent[]; last: readonly JobEvent[]; leftOut: number };
  /** Oldest first. */
  attempts: readonly Lease[];
  /** Of the attempts, by their leases, up to when each was heard of last. */
  signs: ReadonlyMap<string, HeartbeatStats>;
  outages: readonly OutageSpan[];
  capacity: Capacity;
  place: QueuePosition | null;
  /** Of a queued job: what known workers would do with it; null where that is not known. */
  demand: Demand | null;
  endingSoon: readonly EndingLease[];
  /** Of the present lease: the stream that kept it last has closed, as far as this server knows. */
  streamClosed: StreamClosing | null;
}

import type { Key } from '../access/key.ts';
import type { Cause } from '../explain/facts.ts';
import type { Capacity } from '../leases/lease.ts';
import type { JobNeeds, KnownRequest } from '../workers/known-requests.ts';

/** Facts that the doctor reads about a server, its database, its queue and its Redis. */

/** A difference between two clocks, and its uncertainty: half of the round trip. */
export interface ClockFacts {
  aheadMs: number;
  uncertainMs: number;
}

export interface TableFacts {
  table: string;
  liveRows: number;
  deadRows: number;
  vacuumedAtMs: number | null;
  tableBytes: number;
  indexBytes: number;
}

export interface SessionFacts {
  pid: number;
  application: string;
  user: string;
  state: string;
  /** How long the session's transaction has been open. */
  openMs: number;
}

export interface SlotFacts {
  name: string;
  isActive: boolean;
  /** Age, in transactions, of the oldest transaction whose rows the slot keeps; null where it keeps none. */
  xminAge: number | null;
  /** WAL bytes that the slot keeps. */
  keptBytes: number | null;
}

export interface DatabaseFacts {
  engine: 'postgresql' | 'embedded';
  version: string;
  versionNumber: number;
  isReadOnly: boolean;
  settings: Readonly<Record<string, string>>;
  clock: ClockFacts;
  roundTripMs: number;
  databaseBytes: number;
  /** Age, in transactions, of the oldest transaction that is not frozen. */
  transactionAge: number;
  /** Why the server refuses writes. */
  refusal: string | null;
  /** Each of these is null where it could not be read. */
  migrations: { applied: readonly string[]; known: readonly string[] } | null;
  tables: readonly TableFacts[] | null;
  sessions: SessionsFacts | null;
  slots: readonly SlotFacts[] | null;
  prepared: readonly { gid: string; openMs: number }[] | null;
  service: ServiceFacts | null;
  queue: QueueFacts | null;
  /** The keys in force; empty where no keys are used. */
  keys: readonly KeyFacts[] | null;
}

export type KeyFacts = Pick<Key, 'name' | 'roles' | 'createdAtMs' | 'expiresAtMs' | 'lastUsedAtMs'>;

/** How callers reach the server, and what they have to prove. */
export interface AccessFacts {
  posture: { isReachable: boolean; auth: readonly string[]; hasTls: boolean };
  /** Null without TLS. */
  certificate: { expiresAtMs: number; isFailing: boolean } | null;
  usesKeys: boolean;
}

export interface SessionsFacts {
  /** The oldest open transactions, the oldest first. */
  oldest: readonly SessionFacts[];
  /** Sessions whose transactions this role may not see. */
  hidden: number;
  connections: number;
  /** Connections of Leasehold's servers. */
  own: number;
}

/** How far the servers are behind. */
export interface ServiceFacts {
  pulseAgeMs: number | null;
  /** How long the oldest due row has waited for the reaper; 0 where the reaper is on time. */
  overdueMs: number;
  openOutages: number;
  usedUnits: number;
  leasedUnits: number;
}

/** The first ready job of a lane and priority. */
export interface QueueHead extends JobNeeds {
  jobId: string;
  readyMs: number;
}

export interface SilentLease {
  leaseId: string;
  jobId: string;
  workerId: string;
  silentMs: number;
  ttlS: number;
}

/** Facts of the queue. Each is read from the beginning of an index and counted up to a bound. */
export interface QueueFacts {
  capacity: Capacity;
  heads: readonly QueueHead[];
  /** Whether there are more lanes than were read. */
  headsCut: boolean;
  /** Why the job that has been ready for longest waits; empty where a worker has taken it in the meantime. */
  oldestCauses: readonly Cause[];
  /** The requests of known workers; null where there are too many to compare with jobs. */
  asks: readonly KnownRequest[] | null;
  /** Unschedulable jobs, which cost more than the total, counted up to `queueCountMax`. */
  tooCostly: number;
  firstTooCostly: { jobId: string; costUnits: number } | null;
  /** Dead letters by stream, up to `queueCountMax` of them. */
  deadLetters: readonly { stream: string; jobs: number }[];
  /**
   * Leases without a heartbeat for three quarters of their TTL, among the leases that are due for a check
   * next.
   */
  silent: readonly SilentLease[];
}

/** The bound of the counts of jobs. */
export const queueCountMax = 10_000;

export interface RedisFacts {
  version: string;
  usedBytes: number;
  maxBytes: number;
  policy: string;
  savesSnapshots: boolean;
  appendsLog: boolean;
  lastSaveFailed: boolean;
}

/** Why Redis cannot be used: it does not answer, or it `isForeign` and carries another system's data. */
export interface RedisFailure {
  failed: string;
  isForeign: boolean;
}

export interface DiagnosisFacts {
  nowMs: number;
  version: string;
  upMs: number;
  poolMax: number;
  /** The version of Node. */
  node: string;
  access: AccessFacts;
  /** The facts, or why they could not be read. */
  database: DatabaseFacts | { failed: string };
  /** Null where no Redis is configured. */
  redis: RedisFacts | RedisFailure | null;
}

/** Thresholds above which the doctor warns. */
export interface Thresholds {
  oldTransactionMs: number;
  veryOldTransactionMs: number;
  /** How long the first ready job may wait. */
  longReadyMs: number;
  /**
   * How long a ready job may wait without a worker that asks for it. It is above 0, because workers come and
   * go.
   */
  unaskedMs: number;
}

export const thresholds: Thresholds = {
  oldTransactionMs: 5 * 60_000,
  veryOldTransactionMs: 60 * 60_000,
  longReadyMs: 15 * 60_000,
  unaskedMs: 30_000,
};

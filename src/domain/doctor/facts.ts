import type { Cause } from '../explain/facts.ts';
import type { Capacity } from '../leases/lease.ts';
import type { JobNeeds, KnownRequest } from '../workers/known-requests.ts';

/** What a doctor has found of a server, its database, its queue and its Redis, before it is judged. */

/** A difference of clocks, and by how much it may be more or less: half of what asking took. */
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
  /** How long its transaction has been open. */
  openMs: number;
}

export interface SlotFacts {
  name: string;
  isActive: boolean;
  /** How many transactions ago the oldest began whose rows it keeps; null where it keeps none. */
  xminAge: number | null;
  /** Log that is kept for it. */
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
  /** Transactions since the oldest that is not frozen. */
  transactionAge: number;
  /** Why the server refuses writes. */
  refusal: string | null;
  /** What could be read of these; null where it could not. */
  migrations: { applied: readonly string[]; known: readonly string[] } | null;
  tables: readonly TableFacts[] | null;
  sessions: SessionsFacts | null;
  slots: readonly SlotFacts[] | null;
  prepared: readonly { gid: string; openMs: number }[] | null;
  service: ServiceFacts | null;
  queue: QueueFacts | null;
}

export interface SessionsFacts {
  /** The oldest open transactions, the oldest first. */
  oldest: readonly SessionFacts[];
  /** Sessions whose transactions may not be seen. */
  hidden: number;
  connections: number;
  /** Connections of Leasehold's servers. */
  own: number;
}

/** How far the servers are behind. */
export interface ServiceFacts {
  pulseAgeMs: number | null;
  /** How long the reaper should have looked at a row that it has not; 0 where it is on time. */
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

/** Everything here is read from the beginning of an index and counted to a bound. */
export interface QueueFacts {
  capacity: Capacity;
  heads: readonly QueueHead[];
  /** There are more lanes than were read. */
  headsCut: boolean;
  /** Why the job waits that has been ready for longest; nothing where it was taken meanwhile. */
  oldestCauses: readonly Cause[];
  /** What known workers ask for; null where that is more than can be compared with jobs. */
  asks: readonly KnownRequest[] | null;
  /** Jobs that were put aside because they cost more than the total, up to `queueCountMax`. */
  tooCostly: number;
  firstTooCostly: { jobId: string; costUnits: number } | null;
  /** Dead letters by stream, up to `queueCountMax` of them. */
  deadLetters: readonly { stream: string; jobs: number }[];
  /** Leases that were not heard of for three quarters of their TTL, among those that are due for a check next. */
  silent: readonly SilentLease[];
}

/** Jobs of the queue are counted to here. */
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

/** Why nothing is known of a Redis: that it is not there, or that it `isForeign` and carries what belongs to somebody else. */
export interface RedisFailure {
  failed: string;
  isForeign: boolean;
}

export interface DiagnosisFacts {
  nowMs: number;
  version: string;
  upMs: number;
  poolMax: number;
  /** Or why there is nothing known of it. */
  database: DatabaseFacts | { failed: string };
  /** Null where none is used. */
  redis: RedisFacts | RedisFailure | null;
}

/** From when on something is worth a word. */
export interface Thresholds {
  oldTransactionMs: number;
  veryOldTransactionMs: number;
  /** How long the first ready job may wait. */
  longReadyMs: number;
  /** How long a ready job may wait without a worker that asks for it: workers come and go. */
  unaskedMs: number;
}

export const thresholds: Thresholds = {
  oldTransactionMs: 5 * 60_000,
  veryOldTransactionMs: 60 * 60_000,
  longReadyMs: 15 * 60_000,
  unaskedMs: 30_000,
};

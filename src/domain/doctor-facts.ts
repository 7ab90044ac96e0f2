/** What a doctor has found of a server, its database and its Redis, before it is judged. */

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
  /** What could be read of these; null where it could not. */
  migrations: { applied: readonly string[]; known: readonly string[] } | null;
  tables: readonly TableFacts[] | null;
  sessions: SessionsFacts | null;
  slots: readonly SlotFacts[] | null;
  prepared: readonly { gid: string; openMs: number }[] | null;
  service: ServiceFacts | null;
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
}

export const thresholds: Thresholds = {
  oldTransactionMs: 5 * 60_000,
  veryOldTransactionMs: 60 * 60_000,
};

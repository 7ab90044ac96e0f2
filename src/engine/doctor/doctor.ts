/**
 * Examines the server, its database, its queue and its Redis, and reports problems.
 *
 * Guarantees:
 * - There is a diagnosis within little more than `timeoutMs`, even if a dependency hangs. An unresponsive
 *   database is then the finding.
 * - Parts that could not be read in time are named, and the rest is diagnosed.
 * - Nothing is changed and no row is locked.
 * - Concurrent callers share one examination.
 */
import { type Diagnosis, diagnose } from '../../domain/doctor/doctor.ts';
import {
  type AccessFacts,
  type DatabaseFacts,
  type Thresholds,
  thresholds,
} from '../../domain/doctor/facts.ts';
import { withTimeout } from '../../lib/async/with-timeout.ts';
import { version } from '../../lib/version.ts';
import { sqlState } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { readKeysInForce } from '../../store/sql/access/keys.ts';
import {
  readBasics,
  readClock,
  readMigrations,
  readPrepared,
  readService,
  readSessions,
  readSlots,
  readTables,
} from '../../store/sql/doctor/database-facts.ts';
import type { Transport } from '../../transport/transport.ts';
import { toDomainError } from '../context/to-domain-error.ts';
import { readQueueFacts } from './queue-facts.ts';

const defaultTimeoutMs = 3_000;
/** Timeout of each part, so that one that hangs leaves time for the others. */
const partMs = 1_500;

export interface DoctorOptions {
  database: Database;
  transport: Transport;
  poolMax: number;
  /** Units of capacity if none are stored. */
  capacityTotal: number;
  /** How callers reach the server; by default on this machine alone, without authentication. */
  access?: () => AccessFacts;
  /** This machine's clock; default `Date.now`. */
  nowMs?: () => number;
  /** Thresholds of the findings. */
  limits?: Thresholds;
  /** How long the database may take to answer; default three seconds. */
  timeoutMs?: number;
}

export class Doctor {
  readonly #options: Required<DoctorOptions>;
  #running: Promise<Diagnosis> | undefined;

  constructor(options: DoctorOptions) {
    this.#options = {
      access: localAccess,
      nowMs: Date.now,
      limits: thresholds,
      timeoutMs: defaultTimeoutMs,
      ...options,
    };
  }

  /** Examines now. */
  runOnce(): Promise<Diagnosis> {
    this.#running ??= this.#examine().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #examine(): Promise<Diagnosis> {
    const { transport, poolMax, access, limits, nowMs } = this.#options;
    const [database, redis] = await Promise.all([this.#database(), transport.inspect()]);
    const upMs = process.uptime() * 1000;
    const node = process.versions.node;
    const facts = { nowMs: nowMs(), version, upMs, poolMax, node, access: access(), database, redis };
    return diagnose(facts, limits);
  }

  async #database(): Promise<DatabaseFacts | { failed: string }> {
    const { timeoutMs } = this.#options;
    const late = { failed: `nothing came within ${timeoutMs / 1000} s` };
    const signal = AbortSignal.timeout(timeoutMs);
    const looked = this.#read(signal).catch((error: unknown) =>
      signal.aborted ? late : { failed: reasonOf(error) },
    );
    // A database that hangs reports nothing, so the timeout is measured here.
    return withTimeout(looked, timeoutMs, late);
  }

  async #read(signal: AbortSignal): Promise<DatabaseFacts> {
    const { database, nowMs, capacityTotal, access } = this.#options;
    // The first statement may have to wait for a connection, which would distort the clock comparison.
    const basics = await readBasics(database, signal);
    const begun = performance.now();
    const beganAtMs = nowMs();
    const theirsMs = await readClock(database, signal);
    const roundTripMs = performance.now() - begun;
    const part = <T>(read: (sql: Database, signal: AbortSignal) => Promise<T>): Promise<T | null> =>
      withTimeout(
        read(database, AbortSignal.any([signal, AbortSignal.timeout(partMs)])).catch(() => null),
        partMs,
        null,
      );
    // The parts run concurrently, so a lock that one waits for does not delay the others.
    const [migrations, sessions, slots, prepared, service, tables, queue, keys] = await Promise.all([
      part(readMigrations),
      part(readSessions),
      part(readSlots),
      part(readPrepared),
      part(readService),
      part(readTables),
      part((sql, partSignal) => readQueueFacts(sql, capacityTotal, partSignal)),
      access().usesKeys ? part(readKeysInForce) : [],
    ]);
    const clock = { aheadMs: theirsMs - (beganAtMs + roundTripMs / 2), uncertainMs: roundTripMs / 2 };
    const parts = { migrations, sessions, slots, prepared, service, tables, queue, keys };
    const refusal = database.refusal ?? null;
    return { ...basics, engine: database.engine, roundTripMs, clock, refusal, ...parts };
  }
}

const localAccess = (): AccessFacts => ({
  posture: { isReachable: false, auth: [], hasTls: false },
  certificate: null,
  usesKeys: false,
});

/** The message that callers may see, with the error code of the database or the system. */
function reasonOf(error: unknown): string {
  const code = sqlState(error);
  const words = toDomainError(error)?.detail ?? 'it answered with an error; the log may say more';
  return code === undefined ? words : `${words} (${code})`;
}

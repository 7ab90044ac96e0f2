import type { EntityManager } from '@mikro-orm/postgresql';

/**
 * Executes statements: the pool, with one transaction for each statement, or one open transaction. Parameters
 * are always bound.
 */
export interface Sql {
  query<Row>(text: string, params: readonly unknown[], signal?: AbortSignal): Promise<Row[]>;
}

/** The same for statements that MikroORM writes. */
export interface EntitySql extends Sql {
  /** A new entity manager for one use, which reads and writes here. `signal` cancels its statements. */
  em(signal?: AbortSignal): EntityManager;
}

/**
 * A transaction that is open until its work ends, or until the caller seals it: no further statement follows.
 */
export interface TransactionSql extends EntitySql {
  seal(): void;
}

/**
 * Joins a table's row by a key that comes from an earlier part of the statement. Rows are looked up in the
 * key's index, one by one, in the order of that part. `how` may lock them, in the same order.
 *
 * With an ordinary join, a planner that takes the table for empty, as it was at the last ANALYZE, may scan
 * all of it; and such a plan is kept while the table grows.
 */
export const lateralByKey = (table: string, key: string, value: string, how = 'offset 0'): string =>
  `lateral (select *, ctid as place from ${table} where ${table}.${key} = ${value} ${how})`;

/**
 * The same for a table that is updated or deleted from, where a lateral join is not possible. The condition
 * can use only the key's index: an array of one element gives the planner no reason to sort both sides.
 */
export const keyEquals = (key: string, value: string): string => `${key} = any (array[${value}])`;

/**
 * The same for keys of several columns, in brackets. The planner estimates that it holds for one row in nine.
 */
export const keysEqual = (keys: string, values: string): string => `${keys} between ${values} and ${values}`;

/** The word with this number, counted from 0, as an SQL expression. */
export const sqlWord = (words: readonly string[], number: string): string =>
  `(array[${words.map((one) => `'${one}'`).join(', ')}])[${number} + 1]`;

/** The connection is lost, and with it the answers to the statements that were in flight. */
export class ConnectionLostError extends Error {
  override readonly name = 'ConnectionLostError';
  /** SQLSTATE connection_failure. */
  readonly code = '08006';
}

/** The wait for a synchronous standby was cancelled. The change is committed, but a failover may lose it. */
export class UnconfirmedCommitError extends Error {
  override readonly name = 'UnconfirmedCommitError';
  /** SQLSTATE statement_completion_unknown. */
  readonly code = '40003';

  constructor() {
    super('the wait for the synchronous standby was cancelled');
  }
}

/** SQLSTATEs after which the same transaction may run again. */
const retryable = new Set(['40001', '40P01']);

/**
 * SQLSTATEs of a database that cannot serve now: it shuts down, starts, is out of connections or disk, or
 * rows are locked.
 */
const unavailable = new Set([
  '57P01',
  '57P02',
  '57P03',
  '53300',
  '53100',
  '53200',
  '25006',
  '25P03',
  '55P03',
  '40003',
]);

/** Error codes of Node's sockets and of the drivers for an unreachable database. */
const unreachable = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENETUNREACH',
]);

export function sqlState(error: unknown): string | undefined {
  for (let at = error; typeof at === 'object' && at !== null; at = (at as { cause?: unknown }).cause) {
    const { code } = at as { code?: unknown };
    if (typeof code === 'string') return code;
  }
  return undefined;
}

/** Whether a write was refused because its transaction is read-only. */
export const isReadOnly = (error: unknown): boolean => sqlState(error) === '25006';

export const isRetryable = (error: unknown): boolean => retryable.has(sqlState(error) ?? '');

/**
 * Whether no partition exists for a row. PostgreSQL uses the code of all checks; only this one names a table
 * and no constraint.
 */
export function lacksPartition(error: unknown): boolean {
  for (let at = error; typeof at === 'object' && at !== null; at = (at as { cause?: unknown }).cause) {
    const { code, table, constraint } = at as { code?: unknown; table?: unknown; constraint?: unknown };
    if (code === '23514') return table === 'job_events' && constraint === undefined;
  }
  return false;
}

/** Whether the statement was cancelled by this server or by `statement_timeout`. */
export const isCancelled = (error: unknown): boolean =>
  sqlState(error) === '57014' || (error instanceof Error && error.name === 'AbortError');

const lostCodes = new Set(['08006', '57P01', '57P02', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH']);

/** Whether an established connection was lost during a statement, for another reason than a timeout. */
export function isConnectionLost(error: unknown): boolean {
  const code = sqlState(error);
  if (code !== undefined) return lostCodes.has(code);
  return error instanceof Error && /Connection terminated|is not queryable/.test(error.message);
}

/** A unique index has the key already. */
export const isUniqueViolation = (error: unknown): boolean => sqlState(error) === '23505';

export const isUnconfirmed = (error: unknown): boolean => sqlState(error) === '40003';

export function isUnavailable(error: unknown): boolean {
  const code = sqlState(error);
  if (code !== undefined) return unavailable.has(code) || unreachable.has(code) || code.startsWith('08');
  // The pg driver has no code for these errors.
  for (let at = error; at instanceof Error; at = at.cause) if (unavailableText.test(at.message)) return true;
  return false;
}

const unavailableText =
  /Connection terminated|timeout exceeded when trying to connect|is not queryable|Query read timeout|^timeout expired$/;

/** A time that a driver returned: text from a statement, a Date from an entity. */
export function timeMs(value: string | Date): number;
export function timeMs(value: string | Date | null): number | null;
export function timeMs(value: string | Date | null): number | null {
  if (value === null) return null;
  if (typeof value !== 'string') return value.getTime();
  return textMs(value);
}

/**
 * A time as a parameter. ISO-8601 writes years from 10000 on with a sign and zeros, which PostgreSQL rejects.
 */
export const timestamp = (time: Date): string => time.toISOString().replace(/^\+0*/, '');

const dash = 45;
const blank = 32;
const point = 46;
const secondsEnd = 19;
/** The last parsed day, because nearly all times of an answer share it. */
let day = '';
let dayMs = 0;

/**
 * Parses a time in PostgreSQL's format: `2026-01-31 23:59:59.123456+00`, without trailing zeros in the
 * fraction. Reading digit by digit takes a tenth of the time of `Date.parse`, and a grant has seven times.
 * Digits beyond milliseconds are cut off.
 */
function textMs(text: string): number {
  if (text.charCodeAt(4) !== dash || text.charCodeAt(10) !== blank) return otherTextMs(text);
  if (!text.startsWith(day) || day === '') {
    day = text.slice(0, 10);
    dayMs = Date.parse(day);
  }
  let ms = (twoDigits(text, 11) * 3600 + twoDigits(text, 14) * 60 + twoDigits(text, 17)) * 1000;
  if (text.charCodeAt(secondsEnd) === point) {
    for (let at = secondsEnd + 1, unit = 100; unit >= 1; at++, unit /= 10) {
      const digit = text.charCodeAt(at) - 48;
      if (digit < 0 || digit > 9) break;
      ms += digit * unit;
    }
  }
  return dayMs + ms;
}

const twoDigits = (text: string, at: number): number =>
  (text.charCodeAt(at) - 48) * 10 + text.charCodeAt(at + 1) - 48;

// PostgreSQL writes a blank and +00 where ISO-8601 has a T and a Z. Unchanged, the year 49 would parse as
// 2049.
const otherTextMs = (text: string): number => Date.parse(`${text.slice(0, 10)}T${text.slice(11, -3)}Z`);
